"""The rule language: parse, check, resolve; rule files."""
