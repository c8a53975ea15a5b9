"""Where bytes live: the store port and its adapters (memory, folder, object stores)."""
