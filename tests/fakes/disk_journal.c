/* Preloaded into a process: records each write to a database file and each sync of it, in order, in DISK_JOURNAL.

   A record is: one letter (W write, T truncate, S sync, U unlink), the path's length and the path, an offset, a length, and the
   bytes. The numbers are 8 bytes in the byte order of the machine. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int journal = -1;

static void put(const void *bytes, uint64_t count) {
    const char *at = bytes;
    while (count > 0) {
        long done = syscall(SYS_write, journal, at, count);
        if (done <= 0) abort();
        at += done;
        count -= (uint64_t)done;
    }
}

static void record_path(char letter, const char *path, size_t size, uint64_t offset, uint64_t length, const void *bytes) {
    if (size < 4 || memmem(path, size, ".db", 3) == NULL) return;
    if (memcmp(path + size - 4, "-shm", 4) == 0) return;
    pthread_mutex_lock(&lock);
    if (journal < 0) journal = open(getenv("DISK_JOURNAL"), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    uint64_t numbers[3] = {size, offset, length};
    put(&letter, 1);
    put(numbers, sizeof numbers);
    put(path, size);
    if (bytes != NULL) put(bytes, length);
    pthread_mutex_unlock(&lock);
}

static void record(char letter, int fd, uint64_t offset, uint64_t length, const void *bytes) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path);
    if (size > 0) record_path(letter, path, (size_t)size, offset, length, bytes);
}

int unlink(const char *path) {
    int result = (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
    if (result == 0) record_path('U', path, strlen(path), 0, 0, NULL);
    return result;
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t offset) {
    long done = syscall(SYS_pwrite64, fd, bytes, count, offset);
    if (done > 0) record('W', fd, (uint64_t)offset, (uint64_t)done, bytes);
    return done;
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t offset) { return pwrite64(fd, bytes, count, offset); }

ssize_t write(int fd, const void *bytes, size_t count) {
    off_t offset = lseek(fd, 0, SEEK_CUR);
    long done = syscall(SYS_write, fd, bytes, count);
    if (done > 0 && offset >= 0) record('W', fd, (uint64_t)offset, (uint64_t)done, bytes);
    return done;
}

int ftruncate64(int fd, off64_t length) {
    int result = (int)syscall(SYS_ftruncate, fd, length);
    if (result == 0) record('T', fd, (uint64_t)length, 0, NULL);
    return result;
}

int ftruncate(int fd, off_t length) { return ftruncate64(fd, length); }

int fdatasync(int fd) {
    int result = (int)syscall(SYS_fdatasync, fd);
    if (result == 0) record('S', fd, 0, 0, NULL);
    return result;
}

int fsync(int fd) {
    int result = (int)syscall(SYS_fsync, fd);
    if (result == 0) record('S', fd, 0, 0, NULL);
    return result;
}
