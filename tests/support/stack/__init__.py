"""A whole mail system on loopback, for tests, benchmarks and the demo.

`stack.Stack` starts real programs (Redis with the lane module, the milter, relays, a private Postfix and Dovecot,
sinks) under one directory and ends exactly those again. `stack.Generator`, the sinks and `stack.oracle.judge` together say
whether a mail that was answered 250 was lost.
"""
from .failure import StackError
from .shape import Shape, SinkShape
from .stack import Stack

__all__ = ["Shape", "SinkShape", "Stack", "StackError"]
