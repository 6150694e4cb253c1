"""The system calls that an evaluation may not make, as BPF programs for the kernel.

A list of what is refused rather than of what is allowed: numpy, torch and the C library must go on
working across versions.  What the list cannot foresee is refused by number: every call newer than
the newest one judged here answers ENOSYS.  Refused calls fail with EPERM, so that a program gets an
exception and not a crash.  The programs are built from struct, without libseccomp.

File locks are granted and hold nothing: a lock on a read-only file of the host would keep the host's own processes
waiting, a filter cannot see which file is meant, and what an evaluation locks of its own nobody else opens.

There are two, because the kernel takes most of a millisecond to prepare the long one: `program` is
put on the zygote once, and `FINAL` on each evaluation takes away what the zygote needs to shut it in.
"""

from __future__ import annotations

import ctypes
import errno
import struct
import sys

from .kernel import MACHINE, _checked, _libc

_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# To be raised only with a judgement of every call up to the new number.
_LAST_JUDGED = 462
_X32 = 0x40000000

# Name → number on x86_64, on aarch64 (None where there is no such call).
DENIED: dict[str, tuple[int, int | None]] = {
    # The network, abstract sockets included.
    "socket": (41, 198),
    "connect": (42, 203),
    "bind": (49, 200),
    "listen": (50, 201),
    "accept": (43, 202),
    "accept4": (288, 242),
    # Other processes.
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    # Mounts and namespaces.
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "unshare": (272, 97),
    "setns": (308, 268),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    # Memory that no limit of ours counts.
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "userfaultfd": (323, 282),
    "remap_file_pages": (216, 234),
    # What is counted for the user of the whole machine: slots of asynchronous reads, watches of files.
    "io_setup": (206, 0),
    "io_destroy": (207, 1),
    "io_submit": (209, 2),
    "io_cancel": (210, 3),
    "io_getevents": (208, 4),
    "io_pgetevents": (333, 292),
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
    "inotify_add_watch": (254, 27),
    # What the machine does with files and memory of others.
    "mincore": (27, 232),
    "cachestat": (451, 451),
    "statmount": (457, 457),
    "listmount": (458, 458),
    "move_pages": (279, 239),
    "migrate_pages": (256, 238),
    # Ways into the kernel that have been holes before.
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "personality": (135, 92),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "uselib": (134, None),
    "vmsplice": (278, 75),
    "splice": (275, 76),
    "tee": (276, 77),
    # Without a network there is nothing to set but larger buffers, which no limit of ours counts.
    "setsockopt": (54, 208),
    "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263),
    "lookup_dcookie": (212, 18),
    "syslog": (103, 116),
    # The machine itself; refused by capabilities already.
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
}
_CLONE, _CLONE3, _SOCKETPAIR, _IOCTL, _MOUNT = (56, 220), (435, 435), (53, 199), (16, 29), (165, 40)
_FLOCK, _FCNTL = (73, 32), (72, 25)
_LOCK_COMMANDS = (6, 7, 37, 38)  # F_SETLK, F_SETLKW, F_OFD_SETLK, F_OFD_SETLKW
_HOST_COMMANDS = (
    1024,
    1026,
    1031,
)  # F_SETLEASE, F_NOTIFY; F_SETPIPE_SZ is counted for the user of the whole machine
_NAMESPACES = 0x7E020000
_AF_UNIX = 1
_TERMINAL_INPUT = (0x5412, 0x541C)  # TIOCSTI and TIOCLINUX type on the user's terminal

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
# Offsets in `struct seccomp_data`. An argument has eight bytes, of which a load takes the first four: the low
# ones on a little-endian machine alone.
_ARCH, _NUMBER, _ARGUMENTS = 4, 0, 16


def _instruction(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("HBBI", code, yes, no, value)


def _numbers_of(machine: str) -> list[bytes]:
    """How a filter begins: the number of the call is loaded, once it is known to be one of this machine's."""
    code = [
        _instruction(_LOAD, _ARCH),
        _instruction(_EQUAL, _AUDIT[machine], 1, 0),
        _instruction(_RETURN, _KILL),
        _instruction(_LOAD, _NUMBER),
    ]
    if machine == "x86_64":
        # The same kernel answers to a second set of numbers, which would pass by the list.
        code += [_instruction(_AT_LEAST, _X32, 0, 1), _instruction(_RETURN, _KILL)]
    return code


def program(machine: str = MACHINE) -> bytes:
    """The filter as an array of `struct sock_filter`, 8 bytes each.

    Raises:
        OSError: a machine whose system calls are not known here.
    """
    if machine not in _AUDIT or sys.byteorder != "little":
        raise OSError(f"the sandbox knows x86_64 and aarch64, and this machine is {machine}")
    column = 0 if machine == "x86_64" else 1
    refuse = _instruction(_RETURN, _ERRNO | errno.EPERM)
    code = [
        *_numbers_of(machine),
        _instruction(_AT_LEAST, _LAST_JUDGED + 1, 0, 1),
        _instruction(_RETURN, _ERRNO | errno.ENOSYS),
        # Its flags lie in memory, where a filter cannot look; the C library falls back to clone.
        _instruction(_EQUAL, _CLONE3[column], 0, 1),
        _instruction(_RETURN, _ERRNO | errno.ENOSYS),
    ]
    for numbers in DENIED.values():
        number = numbers[column]
        if number is not None:
            code += [_instruction(_EQUAL, number, 0, 1), refuse]
    granted = _instruction(_RETURN, _ERRNO)  # the error number 0: the call does nothing and succeeds
    commands = [
        *(_instruction(_EQUAL, command, 0, 1) + granted for command in _LOCK_COMMANDS),
        *(_instruction(_EQUAL, command, 0, 1) + refuse for command in _HOST_COMMANDS),
    ]
    code += [
        _instruction(_EQUAL, _FLOCK[column], 0, 1),
        granted,
        # The last two figures are instructions to skip: one more in a block changes those before it.
        _instruction(_EQUAL, _FCNTL[column], 0, 2 + 2 * len(commands)),
        _instruction(_LOAD, _ARGUMENTS + 8),
        *commands,
        _instruction(_RETURN, _ALLOW),
        _instruction(_EQUAL, _SOCKETPAIR[column], 0, 3),
        _instruction(_LOAD, _ARGUMENTS),
        _instruction(_EQUAL, _AF_UNIX, 1, 0),
        refuse,
        _instruction(_LOAD, _NUMBER),
        _instruction(_EQUAL, _IOCTL[column], 0, 4),
        _instruction(_LOAD, _ARGUMENTS + 8),
        _instruction(_EQUAL, _TERMINAL_INPUT[0], 1, 0),
        _instruction(_EQUAL, _TERMINAL_INPUT[1], 0, 1),
        refuse,
        _instruction(_RETURN, _ALLOW),
    ]
    return b"".join(code)


def final(machine: str = MACHINE) -> bytes:
    """Further refusals in each evaluation: no mount, and no new process in namespaces of its own."""
    column = 1 if machine == "aarch64" else 0
    refuse = _instruction(_RETURN, _ERRNO | errno.EPERM)
    code = [
        _instruction(_LOAD, _NUMBER),
        _instruction(_EQUAL, _MOUNT[column], 0, 1),
        refuse,
        _instruction(_EQUAL, _CLONE[column], 0, 3),
        _instruction(_LOAD, _ARGUMENTS),
        _instruction(_ANY_BIT, _NAMESPACES, 0, 1),
        refuse,
        _instruction(_RETURN, _ALLOW),
    ]
    return b"".join(code)


def no_named_sockets(machine: str = MACHINE) -> bytes:
    """For a program with a loopback of its own: no socket that lies in the file system, whoever serves it there."""
    column = 1 if machine == "aarch64" else 0
    refuse = _instruction(_RETURN, _ERRNO | errno.EPERM)
    code = _numbers_of(machine)
    for name in ("io_uring_setup", "ptrace", "bpf"):
        code += [_instruction(_EQUAL, DENIED[name][column] or 0, 0, 1), refuse]
    code += [
        # A pair of sockets has no name, and asyncio needs one.
        _instruction(_EQUAL, DENIED["socket"][column] or 0, 0, 3),
        _instruction(_LOAD, _ARGUMENTS),
        _instruction(_EQUAL, _AF_UNIX, 0, 1),
        refuse,
        _instruction(_RETURN, _ALLOW),
    ]
    return b"".join(code)


FINAL = final()


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


class Filter:
    """A filter in the form that the kernel takes.

    Args:
        code: `program()`, or `FINAL`.
    """

    def __init__(self, code: bytes) -> None:
        # Kept here: the program holds its bare address, which ctypes does not count as a use.
        self._buffer = ctypes.create_string_buffer(code, len(code))
        address = ctypes.cast(self._buffer, ctypes.c_void_p).value
        self._program = ctypes.byref(_Program(len(code) // 8, address))

    def install(self) -> None:
        """Put it on this thread and all that it starts, for good; privileges must be forbidden first."""
        set_seccomp, filter_mode = 22, 2
        _checked(_libc.prctl(set_seccomp, filter_mode, self._program, 0, 0), "prctl(PR_SET_SECCOMP)")
