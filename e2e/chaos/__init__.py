"""Chaos on the local cluster: everything fails at random while jobs run and objects change. See test_chaos.py."""
