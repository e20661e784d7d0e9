"""Where runs live: the protocol of a store, and the store over SQL databases."""
