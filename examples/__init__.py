"""Examples. They are in no wheel: copy from them."""
