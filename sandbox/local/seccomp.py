"""Builds the BPF filter of allowed system calls for bubblewrap's --seccomp.

Everything that is not listed is refused, including calls that a later kernel adds. The list holds what shells,
compilers, Python, Node.js, git, databases and Chromium need. Names and numbers are those of the kernel's
arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h."""

import struct
from itertools import pairwise

EPERM, ENOMEM, EINVAL, ENOSYS, EOPNOTSUPP, EAFNOSUPPORT = 1, 12, 22, 38, 95, 97
LOAD_WORD, JUMP_EQUAL, JUMP_GREATER_EQUAL, JUMP_ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, ERROR, KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
OFFSET_NUMBER, OFFSET_ARCHITECTURE, OFFSET_FIRST_ARGUMENT, OFFSET_SECOND_ARGUMENT = 0, 4, 16, 24
OFFSET_THIRD_ARGUMENT = 32
TIOCSTI, TIOCLINUX = 0x5412, 0x541C
CLONE_NEW_ANY = 0x7E020000  # every CLONE_NEW* flag that clone takes
CLONE_FILES, CLONE_THREAD, CLOSE_RANGE_UNSHARE = 0x400, 0x10000, 2
ALLOWED_FAMILIES = (1, 2, 10, 16)  # AF_UNIX, AF_INET, AF_INET6, AF_NETLINK
SHARED_SEGMENT_BYTES_MAX = 64 * 1024
"""System V segments are not counted. The kernel allows 4096 of them for each jail."""
X32_BIT = 0x40000000
NEWEST_KNOWN = 469
"""System calls with higher numbers fail with ENOSYS, as on a kernel that lacks them, so that the C library uses an
older call."""

AUDIT_ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

ALLOWED = {
    "files": """
        access 21 -, cachestat 451 451, chdir 80 49, chmod 90 -, chown 92 -, close 3 57,
        copy_file_range 326 285, creat 85 -, dup 32 23, dup2 33 -, dup3 292 24, faccessat 269 48,
        faccessat2 439 439, fadvise64 221 223, fchdir 81 50, fchmod 91 52, fchmodat 268 53, fchmodat2 452 452,
        fchown 93 55, fchownat 260 54, fcntl 72 25, fdatasync 75 83, fgetxattr 193 10, flistxattr 196 13,
        flock 73 32, fremovexattr 199 16, fsetxattr 190 7, fstat 5 80, fstatfs 138 44, fsync 74 82, ftruncate 77 46,
        futimesat 261 -, getcwd 79 17, getdents 78 -, getdents64 217 61, getxattr 191 8, inotify_add_watch 254 27,
        inotify_init 253 -, inotify_init1 294 26, inotify_rm_watch 255 28, ioprio_get 252 31, ioprio_set 251 30,
        lchown 94 -, lgetxattr 192 9, link 86 -, linkat 265 37, listxattr 194 11, llistxattr 195 12,
        lremovexattr 198 15, lseek 8 62, lsetxattr 189 6, lstat 6 -, mkdir 83 -, mkdirat 258 34, mknod 133 -,
        mknodat 259 33, newfstatat 262 79, open 2 -, openat 257 56, openat2 437 437, pipe 22 -, pipe2 293 59,
        pread64 17 67, preadv 295 69, preadv2 327 286, pwrite64 18 68, pwritev 296 70, pwritev2 328 287, read 0 63,
        readahead 187 213, readlink 89 -, readlinkat 267 78, readv 19 65, removexattr 197 14, rename 82 -,
        renameat 264 38, renameat2 316 276, rmdir 84 -, sendfile 40 71, setxattr 188 5, splice 275 76, stat 4 -,
        statfs 137 43, statx 332 291, symlink 88 -, symlinkat 266 36, sync_file_range 277 84, tee 276 77,
        truncate 76 45, umask 95 166, unlink 87 -, unlinkat 263 35, utime 132 -, utimensat 280 88, utimes 235 -,
        write 1 64, writev 20 66
    """,
    "memory": """
        brk 12 214, madvise 28 233, map_shadow_stack 453 453, membarrier 324 283, memfd_create 319 279,
        mincore 27 232, mlock 149 228, mlock2 325 284, mlockall 151 230, mmap 9 222, mprotect 10 226, mremap 25 216,
        mseal 462 462, msync 26 227, munlock 150 229, munlockall 152 231, munmap 11 215, pkey_alloc 330 289,
        pkey_free 331 290, pkey_mprotect 329 288
    """,
    "processes": """
        arch_prctl 158 -, capget 125 90, capset 126 91, execve 59 221, execveat 322 281,
        exit 60 93, exit_group 231 94, fork 57 -,
        get_robust_list 274 100, getcpu 309 168, getegid 108 177, geteuid 107 175, getgid 104 176,
        getgroups 115 158, getpgid 121 155, getpgrp 111 -, getpid 39 172, getppid 110 173, getpriority 140 141,
        getresgid 120 150, getresuid 118 148, getrlimit 97 163, getrusage 98 165, getsid 124 156, gettid 186 178,
        getuid 102 174, kill 62 129, pidfd_open 434 434, pidfd_send_signal 424 424, prctl 157 167,
        prlimit64 302 261, rseq 334 293, sched_get_priority_max 146 125, sched_get_priority_min 147 126,
        sched_getaffinity 204 123, sched_getattr 315 275, sched_getparam 143 121, sched_getscheduler 145 120,
        sched_rr_get_interval 148 127, sched_setaffinity 203 122, sched_setattr 314 274, sched_setparam 142 118,
        sched_setscheduler 144 119, sched_yield 24 124, set_robust_list 273 99, set_tid_address 218 96,
        setfsgid 123 152, setfsuid 122 151, setgid 106 144, setgroups 116 159, setpgid 109 154, setpriority 141 140,
        setregid 114 143, setresgid 119 149, setresuid 117 147, setreuid 113 145, setrlimit 160 164, setsid 112 157,
        setuid 105 146, sysinfo 99 179, times 100 153, uname 63 160, vfork 58 -, wait4 61 260, waitid 247 95
    """,
    "signals and waiting": """
        alarm 37 -, epoll_create 213 -, epoll_create1 291 20, epoll_ctl 233 21, epoll_pwait 281 22,
        epoll_pwait2 441 441, epoll_wait 232 -, eventfd 284 -, eventfd2 290 19, futex 202 98, futex_requeue 456 456,
        futex_wait 455 455, futex_waitv 449 449, futex_wake 454 454, pause 34 -, poll 7 -, ppoll 271 73,
        pselect6 270 72, restart_syscall 219 128, rt_sigaction 13 134, rt_sigpending 127 136, rt_sigprocmask 14 135,
        rt_sigqueueinfo 129 138, rt_sigreturn 15 139, rt_sigsuspend 130 133, rt_sigtimedwait 128 137,
        rt_tgsigqueueinfo 297 240, select 23 -, sigaltstack 131 132, signalfd 282 -, signalfd4 289 74,
        tgkill 234 131, tkill 200 130
    """,
    "time": """
        clock_getres 229 114, clock_gettime 228 113, clock_nanosleep 230 115, getitimer 36 102, getrandom 318 278,
        gettimeofday 96 169, nanosleep 35 101, setitimer 38 103, time 201 -, timer_create 222 107,
        timer_delete 226 111, timer_getoverrun 225 109, timer_gettime 224 108, timer_settime 223 110,
        timerfd_create 283 85, timerfd_gettime 287 87, timerfd_settime 286 86
    """,
    "sockets": """
        accept 43 202, accept4 288 242, bind 49 200, connect 42 203, getpeername 52 205, getsockname 51 204,
        getsockopt 55 209, listen 50 201, recvfrom 45 207, recvmmsg 299 243, recvmsg 47 212, sendmmsg 307 269,
        sendmsg 46 211, sendto 44 206, setsockopt 54 208, shutdown 48 210, socketpair 53 199
    """,
    "shared memory": """
        shmat 30 196, shmctl 31 195, shmdt 67 197
    """,
}
"""Each call with its number on x86_64 and on aarch64."""

EXAMINED = """
    clone 56 220, clone3 435 435, close_range 436 436, fallocate 285 47, ioctl 16 29, shmget 29 194, socket 41 198
"""
"""Calls that depend on their arguments, or fail with an error that makes programs use another one."""


def parse_system_call_table(table: str, machine: str) -> dict[str, int]:
    """Parses a table. Omits the calls that the architecture does not have."""
    column = ("x86_64", "aarch64").index(machine) + 1
    rows = (row.split() for row in table.replace(",", "\n").splitlines() if row.strip())
    return {row[0]: int(row[column]) for row in rows if row[column] != "-"}


def is_supported(machine: str) -> bool:
    return machine in AUDIT_ARCHITECTURE


def build_filter(machine: str, *, starts_processes: bool = True) -> bytes:
    """Returns the filter for `platform.machine()`. Unless the program `starts_processes`, it can start threads only.

    Raises KeyError for an unknown architecture."""
    steps = [
        _step(LOAD_WORD, OFFSET_ARCHITECTURE),
        _step(JUMP_EQUAL, AUDIT_ARCHITECTURE[machine], 1, 0),
        _step(RETURN, KILL_PROCESS),
        _step(LOAD_WORD, OFFSET_NUMBER),
    ]
    if machine == "x86_64":
        steps += [_step(JUMP_GREATER_EQUAL, X32_BIT, 0, 1), _step(RETURN, ERROR | ENOSYS)]
    for name, number in parse_system_call_table(EXAMINED, machine).items():
        examining = (
            EXAMINATIONS[name]
            if starts_processes
            else {**EXAMINATIONS, "clone": _examine_clone(starts_processes=False)}[name]
        )
        steps += [_step(JUMP_EQUAL, number, 0, len(examining)), *examining]
    allowed = {name: at for table in ALLOWED.values() for name, at in parse_system_call_table(table, machine).items()}
    if not starts_processes:
        allowed = {name: number for name, number in allowed.items() if name not in ("fork", "vfork")}
    steps += _allow_ranges(sorted(allowed.values()))
    return b"".join(steps)


def _allow_ranges(numbers: list[int]) -> list[bytes]:
    steps: list[bytes] = []
    first = numbers[0]
    for number, following in pairwise([*numbers, NEWEST_KNOWN + 2]):
        if following > number + 1:
            steps += [
                _step(JUMP_GREATER_EQUAL, number + 1, 3, 0),
                _step(JUMP_GREATER_EQUAL, first, 1, 0),
                _step(RETURN, ERROR | EPERM),
                _step(RETURN, ALLOW),
            ]
            first = following
    steps += [_step(JUMP_GREATER_EQUAL, NEWEST_KNOWN + 1, 0, 1), _step(RETURN, ERROR | ENOSYS)]
    return [*steps, _step(RETURN, ERROR | EPERM)]


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)


def _examine_socket() -> list[bytes]:
    steps = [_step(LOAD_WORD, OFFSET_FIRST_ARGUMENT)]
    for family in ALLOWED_FAMILIES:
        steps += [_step(JUMP_EQUAL, family, 0, 1), _step(RETURN, ALLOW)]
    return [*steps, _step(RETURN, ERROR | EAFNOSUPPORT)]


def _examine_clone(*, starts_processes: bool) -> list[bytes]:
    return [
        _step(LOAD_WORD, OFFSET_FIRST_ARGUMENT),
        _step(JUMP_ANY_BIT, CLONE_NEW_ANY, 2, 0),
        _step(JUMP_ANY_BIT, CLONE_THREAD, 0, 2 if starts_processes else 1),
        # a thread with a table of open files of its own could hold deleted files that are not counted
        _step(JUMP_ANY_BIT, CLONE_FILES, 1, 0),
        _step(RETURN, ERROR | EPERM),
        _step(RETURN, ALLOW),
    ]


EXAMINATIONS = {
    "clone": _examine_clone(starts_processes=True),
    "close_range": [
        _step(LOAD_WORD, OFFSET_THIRD_ARGUMENT),
        _step(JUMP_ANY_BIT, CLOSE_RANGE_UNSHARE, 0, 1),
        _step(RETURN, ERROR | EINVAL),
        _step(RETURN, ALLOW),
    ],
    # its flags are behind a pointer, which a filter cannot read; the C library falls back to clone
    "clone3": [_step(RETURN, ERROR | ENOSYS)],
    # it would fill gigabytes of the disk before any check; the C library falls back to writing
    "fallocate": [_step(RETURN, ERROR | EOPNOTSUPP)],
    "ioctl": [
        _step(LOAD_WORD, OFFSET_SECOND_ARGUMENT),
        _step(JUMP_EQUAL, TIOCSTI, 1, 0),
        _step(JUMP_EQUAL, TIOCLINUX, 0, 1),
        _step(RETURN, ERROR | EPERM),
        _step(RETURN, ALLOW),
    ],
    "shmget": [
        _step(LOAD_WORD, OFFSET_SECOND_ARGUMENT + 4),
        _step(JUMP_EQUAL, 0, 0, 2),
        _step(LOAD_WORD, OFFSET_SECOND_ARGUMENT),
        _step(JUMP_GREATER_EQUAL, SHARED_SEGMENT_BYTES_MAX + 1, 0, 1),
        _step(RETURN, ERROR | ENOMEM),
        _step(RETURN, ALLOW),
    ],
    "socket": _examine_socket(),
}
