/* Loaded before the C library (LD_PRELOAD): counts what a process does to the files below one folder, and has the
 * operation of a chosen number fail, stop the process or kill it.
 *
 *     cc -shared -fPIC -O1 -o disk.so disk.c -ldl
 *
 * An operation is a call that writes, makes room, waits for the disk, or makes, renames or removes a name. The writes of
 * C's buffered files are counted as they are asked for, not as the buffer is written.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { NOTHING, KILLED_BEFORE, KILLED_WITHIN, FULL, READ_ONLY, STOPPED, CLOCK };

static char root[PATH_MAX];
static size_t root_length;
static int how;
static long at, jump_s;
static atomic_long steps;
static atomic_int jumped;

void fault_arm(const char *folder, int kind, long step, long seconds) {
    root_length = strlen(folder);
    memcpy(root, folder, root_length + 1);
    how = kind, at = step, jump_s = seconds;
    atomic_store(&steps, 0);
    atomic_store(&jumped, 0);
}

long fault_steps(void) { return atomic_load(&steps); }

static int below(const char *path) { return root_length && strncmp(path, root, root_length) == 0; }

static int below_fd(int fd) {
    char link[32], path[PATH_MAX];
    if (!root_length || fd < 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return below(path);
}

static int below_at(int folder, const char *path) { return path[0] == '/' ? below(path) : below_fd(folder); }

static void die(void) {
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

#define WITHIN -1 /* the process dies once half of it is done */
#define PARTLY -2 /* there is room for half of it */

/* What befalls the next operation: nothing (0), WITHIN, PARTLY, or its errno. `room`: whether it takes some. */
static int fate(int room) {
    long step = atomic_fetch_add(&steps, 1);
    if (step < at) return 0;
    switch (how) {
    case KILLED_BEFORE: if (step == at) die(); return 0;
    case KILLED_WITHIN: return step == at ? WITHIN : 0;
    case FULL: return !room ? 0 : step == at ? PARTLY : ENOSPC;
    case READ_ONLY: return EROFS;
    case STOPPED: if (step == at) raise(SIGSTOP); return 0;
    case CLOCK: atomic_store(&jumped, 1); return 0;
    default: return 0;
    }
}

#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

/* A call that is done or not: killed in its midst, it is done. */
#define WHOLE(ours, room, failed, call) \
    do { \
        if (!(ours)) return call; \
        int told = fate(room); \
        if (told > 0 || told == PARTLY) { errno = told > 0 ? told : ENOSPC; return failed; } \
        __typeof__(call) result = call; \
        if (told == WITHIN) die(); \
        return result; \
    } while (0)

#define WRITES(flags) ((flags) & (O_CREAT | O_TRUNC))

static int is_new(int folder, const char *path) { return faccessat(folder, path, F_OK, AT_SYMLINK_NOFOLLOW) != 0; }

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        REAL(name); \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = va_arg(rest, mode_t); \
        va_end(rest); \
        WHOLE(WRITES(flags) && below(path), is_new(AT_FDCWD, path), -1, real(path, flags, mode)); \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name) \
    int name(int folder, const char *path, int flags, ...) { \
        REAL(name); \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = va_arg(rest, mode_t); \
        va_end(rest); \
        WHOLE(WRITES(flags) && below_at(folder, path), is_new(folder, path), -1, real(folder, path, flags, mode)); \
    }
OPENAT(openat)
OPENAT(openat64)

#define FOPEN(name) \
    FILE *name(const char *path, const char *mode) { \
        REAL(name); \
        WHOLE(!strchr(mode, 'r') && below(path), is_new(AT_FDCWD, path), NULL, real(path, mode)); \
    }
FOPEN(fopen)
FOPEN(fopen64)

/* Bytes of which a part may be written. */
#define BYTES(fd, count, call, half) \
    do { \
        if (!below_fd(fd)) return call; \
        int told = fate(1); \
        if (told > 0 || (told == PARTLY && (count) < 2)) { errno = told > 0 ? told : ENOSPC; return -1; } \
        if (told == PARTLY) return half; \
        if (told == WITHIN) { if (half < 0) _exit(99); die(); } \
        return call; \
    } while (0)

ssize_t write(int fd, const void *data, size_t count) {
    REAL(write);
    BYTES(fd, count, real(fd, data, count), real(fd, data, count / 2));
}

#define PWRITE(name, offset_type) \
    ssize_t name(int fd, const void *data, size_t count, offset_type place) { \
        REAL(name); \
        BYTES(fd, count, real(fd, data, count, place), real(fd, data, count / 2, place)); \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(writev);
    BYTES(fd, count, real(fd, parts, count), real(fd, parts, count / 2));
}

#define SENDFILE(name, offset_type) \
    ssize_t name(int to, int from, offset_type *place, size_t count) { \
        REAL(name); \
        BYTES(to, count, real(to, from, place, count), real(to, from, place, count / 2)); \
    }
SENDFILE(sendfile, off_t)
SENDFILE(sendfile64, off64_t)

ssize_t copy_file_range(int from, off64_t *there, int to, off64_t *here, size_t count, unsigned flags) {
    REAL(copy_file_range);
    BYTES(to, count, real(from, there, to, here, count, flags), real(from, there, to, here, count / 2, flags));
}

size_t fwrite(const void *data, size_t size, size_t count, FILE *file) {
    REAL(fwrite);
    if (!below_fd(fileno(file))) return real(data, size, count, file);
    int told = fate(1);
    if (told == WITHIN) { real(data, size, count / 2, file); fflush(file); die(); }
    if (told == PARTLY) { errno = ENOSPC; return real(data, size, count / 2, file); }
    if (told > 0) { errno = told; return 0; }
    return real(data, size, count, file);
}

int ftruncate(int fd, off_t length) { REAL(ftruncate); WHOLE(below_fd(fd), 0, -1, real(fd, length)); }
int ftruncate64(int fd, off64_t length) { REAL(ftruncate64); WHOLE(below_fd(fd), 0, -1, real(fd, length)); }
int truncate(const char *path, off_t length) { REAL(truncate); WHOLE(below(path), 0, -1, real(path, length)); }
int fsync(int fd) { REAL(fsync); WHOLE(below_fd(fd), 1, -1, real(fd)); }
int fdatasync(int fd) { REAL(fdatasync); WHOLE(below_fd(fd), 1, -1, real(fd)); }

int rename(const char *from, const char *to) { REAL(rename); WHOLE(below(to), 0, -1, real(from, to)); }
int renameat(int a, const char *from, int b, const char *to) {
    REAL(renameat);
    WHOLE(below_at(b, to), 0, -1, real(a, from, b, to));
}
int renameat2(int a, const char *from, int b, const char *to, unsigned flags) {
    REAL(renameat2);
    WHOLE(below_at(b, to), 0, -1, real(a, from, b, to, flags));
}
int unlink(const char *path) { REAL(unlink); WHOLE(below(path), 0, -1, real(path)); }
int unlinkat(int folder, const char *path, int flags) {
    REAL(unlinkat);
    WHOLE(below_at(folder, path), 0, -1, real(folder, path, flags));
}
int rmdir(const char *path) { REAL(rmdir); WHOLE(below(path), 0, -1, real(path)); }
int mkdir(const char *path, mode_t mode) { REAL(mkdir); WHOLE(below(path), 1, -1, real(path, mode)); }
int mkdirat(int folder, const char *path, mode_t mode) {
    REAL(mkdirat);
    WHOLE(below_at(folder, path), 1, -1, real(folder, path, mode));
}
int link(const char *from, const char *to) { REAL(link); WHOLE(below(to), 1, -1, real(from, to)); }
int linkat(int a, const char *from, int b, const char *to, int flags) {
    REAL(linkat);
    WHOLE(below_at(b, to), 1, -1, real(a, from, b, to, flags));
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    REAL(clock_gettime);
    int result = real(clock, now);
    if (clock == CLOCK_REALTIME && atomic_load(&jumped)) now->tv_sec += jump_s;
    return result;
}
