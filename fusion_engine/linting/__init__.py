"""Judging rules without a network: what can never match, never be reached, or means something else elsewhere.

All of it is sound: a finding is told only where no network could show it to be wrong. What would take too long
to prove is not told.
"""
