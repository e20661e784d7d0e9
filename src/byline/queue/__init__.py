"""How workers hear of queued runs: wake-ups over what an installation has already.

Each carries a run's id and nothing else. The run row is the truth (P17): what is lost, late or doubled costs latency
only, since workers look by themselves as well.
"""
