"""The code that runs inside the sandbox: standard library only, on any CPython from 3.10.

The folder is bound read-only into the sandbox as the package `inside`, so nothing here may import
from the rest of whet.  `zygote` is the trusted process that forks evaluations, `worker` what an
evaluation does, `door` (with `beside` and `probes`) how an evaluator sits beside its program,
`walls` what it is shut in with, `seccomp` the system calls it may not make, `enter` the way in where
bubblewrap is missing.
"""
