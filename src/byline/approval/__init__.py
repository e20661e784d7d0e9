"""Approval: does a call wait, what does the person read, what do they decide, and who may."""
