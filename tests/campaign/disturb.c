/* Loaded before the C library of a server under test (LD_PRELOAD): a disk that is slow, a clock that jumps.
 *
 * The file that DISTURB names holds two doubles of the machine: seconds that each write to a disk waits, and
 * seconds that the clock of the day is off. Both are read anew at each call; 0 disturbs nothing. The steady
 * clock (CLOCK_MONOTONIC) stays as it is, as it does where an administrator sets the time.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile double *control;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("DISTURB");
    int file = path ? open(path, O_RDONLY) : -1;
    if (file < 0)
        return;
    void *found = mmap(NULL, 2 * sizeof(double), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (found != MAP_FAILED)
        control = found;
}

static void wait_for_disk(void) {
    double seconds = control ? control[0] : 0;
    if (seconds > 0) {
        struct timespec span = {(time_t)seconds, (long)((seconds - floor(seconds)) * 1e9)};
        nanosleep(&span, NULL);
    }
}

int fsync(int file) {
    static int (*real)(int);
    if (!real)
        real = dlsym(RTLD_NEXT, "fsync");
    wait_for_disk();
    return real(file);
}

int fdatasync(int file) {
    static int (*real)(int);
    if (!real)
        real = dlsym(RTLD_NEXT, "fdatasync");
    wait_for_disk();
    return real(file);
}

ssize_t pwrite64(int file, const void *data, size_t size, off64_t at) {
    static ssize_t (*real)(int, const void *, size_t, off64_t);
    if (!real)
        real = dlsym(RTLD_NEXT, "pwrite64");
    wait_for_disk();
    return real(file, data, size, at);
}

int clock_gettime(clockid_t which, struct timespec *found) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real)
        real = dlsym(RTLD_NEXT, "clock_gettime");
    int status = real(which, found);
    if (status == 0 && which == CLOCK_REALTIME && control)
        found->tv_sec += (time_t)control[1];
    return status;
}

int gettimeofday(struct timeval *restrict found, void *restrict zone) {
    static int (*real)(struct timeval *restrict, void *restrict);
    if (!real)
        real = dlsym(RTLD_NEXT, "gettimeofday");
    int status = real(found, zone);
    if (status == 0 && control)
        found->tv_sec += (time_t)control[1];
    return status;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out)
        *out = now.tv_sec;
    return now.tv_sec;
}
