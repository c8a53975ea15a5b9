"""Who runs procedures: blocking threads or asyncio; with a clock that follows the store's, and a meter."""
