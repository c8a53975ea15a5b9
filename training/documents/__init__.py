"""How the graph of the documents' encoder was made."""
