"""Builds the BPF filter of forbidden system calls for bubblewrap's --seccomp."""

import struct

EPERM, ENOSYS = 1, 38
LOAD_WORD, JUMP_EQUAL, JUMP_GREATER_EQUAL, JUMP_ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, ERROR, KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
OFFSET_NUMBER, OFFSET_ARCHITECTURE, OFFSET_FIRST_ARGUMENT, OFFSET_SECOND_ARGUMENT = 0, 4, 16, 24
TIOCSTI, TIOCLINUX = 0x5412, 0x541C
CLONE_NEW_ANY = 0x7E020000  # every CLONE_NEW* flag that clone takes
ALLOWED_FAMILIES = (1, 2, 10, 16)  # AF_UNIX, AF_INET, AF_INET6, AF_NETLINK
X32_BIT = 0x40000000

AUDIT_ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

# linux/arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h
FORBIDDEN = {
    "x86_64": {
        "acct": 163, "add_key": 248, "bpf": 321, "clock_settime": 227, "delete_module": 176,
        "finit_module": 313, "fsconfig": 431, "fsmount": 432, "fsopen": 430, "fspick": 433,
        "init_module": 175, "io_uring_enter": 426, "io_uring_register": 427, "io_uring_setup": 425,
        "kexec_file_load": 320, "kexec_load": 246, "keyctl": 250, "mount": 165,
        "mount_setattr": 442, "move_mount": 429, "name_to_handle_at": 303,
        "open_by_handle_at": 304, "open_tree": 428, "perf_event_open": 298, "pivot_root": 155,
        "process_madvise": 440, "quotactl": 179, "reboot": 169, "request_key": 249, "setns": 308,
        "settimeofday": 164, "swapoff": 168, "swapon": 167, "syslog": 103, "umount2": 166,
        "unshare": 272, "userfaultfd": 323, "vmsplice": 278,
    },
    "aarch64": {
        "acct": 89, "add_key": 217, "bpf": 280, "clock_settime": 112, "delete_module": 106,
        "finit_module": 273, "fsconfig": 431, "fsmount": 432, "fsopen": 430, "fspick": 433,
        "init_module": 105, "io_uring_enter": 426, "io_uring_register": 427, "io_uring_setup": 425,
        "kexec_file_load": 294, "kexec_load": 104, "keyctl": 219, "mount": 40,
        "mount_setattr": 442, "move_mount": 429, "name_to_handle_at": 264,
        "open_by_handle_at": 265, "open_tree": 428, "perf_event_open": 241, "pivot_root": 41,
        "process_madvise": 440, "quotactl": 60, "reboot": 142, "request_key": 218, "setns": 268,
        "settimeofday": 170, "swapoff": 225, "swapon": 224, "syslog": 116, "umount2": 39,
        "unshare": 97, "userfaultfd": 282, "vmsplice": 75,
    },
}  # fmt: skip
CLONE = {"x86_64": 56, "aarch64": 220}
CLONE3 = 435
SOCKET = {"x86_64": 41, "aarch64": 198}
IOCTL = {"x86_64": 16, "aarch64": 29}


def is_supported(machine: str) -> bool:
    return machine in AUDIT_ARCHITECTURE


def build_filter(machine: str) -> bytes:
    """Returns the filter for `platform.machine()`. Raises KeyError for an unknown architecture."""
    steps = [
        _step(LOAD_WORD, OFFSET_ARCHITECTURE),
        _step(JUMP_EQUAL, AUDIT_ARCHITECTURE[machine], 1, 0),
        _step(RETURN, KILL_PROCESS),
        _step(LOAD_WORD, OFFSET_NUMBER),
    ]
    if machine == "x86_64":
        steps += [_step(JUMP_GREATER_EQUAL, X32_BIT, 0, 1), _step(RETURN, ERROR | ENOSYS)]
    for number in FORBIDDEN[machine].values():
        steps += [_step(JUMP_EQUAL, number, 0, 1), _step(RETURN, ERROR | EPERM)]
    # its flags are behind a pointer, which a filter cannot read; the C library falls back to clone
    steps += [_step(JUMP_EQUAL, CLONE3, 0, 1), _step(RETURN, ERROR | ENOSYS)]
    steps += [
        _step(JUMP_EQUAL, CLONE[machine], 0, 4),
        _step(LOAD_WORD, OFFSET_FIRST_ARGUMENT),
        _step(JUMP_ANY_BIT, CLONE_NEW_ANY, 0, 1),
        _step(RETURN, ERROR | EPERM),
        _step(RETURN, ALLOW),
    ]
    steps += [
        _step(JUMP_EQUAL, IOCTL[machine], 0, 5),
        _step(LOAD_WORD, OFFSET_SECOND_ARGUMENT),
        _step(JUMP_EQUAL, TIOCSTI, 1, 0),
        _step(JUMP_EQUAL, TIOCLINUX, 0, 1),
        _step(RETURN, ERROR | EPERM),
        _step(RETURN, ALLOW),
    ]
    steps += [_step(JUMP_EQUAL, SOCKET[machine], 1, 0), _step(RETURN, ALLOW)]
    steps.append(_step(LOAD_WORD, OFFSET_FIRST_ARGUMENT))
    for family in ALLOWED_FAMILIES:
        steps += [_step(JUMP_EQUAL, family, 0, 1), _step(RETURN, ALLOW)]
    steps.append(_step(RETURN, ERROR | 97))  # EAFNOSUPPORT
    return b"".join(steps)


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)
