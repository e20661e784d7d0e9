"""What a run is: its statuses and their legal moves, its trace, and how people read it."""
