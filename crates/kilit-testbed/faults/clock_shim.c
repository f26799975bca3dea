/* Shifts the wall clock of one process: preload it, and let KILIT_CLOCK_OFFSET name a file of eight bytes, an integer in
 * the machine's byte order that is added to the clock, in microseconds. The file is mapped, so that a change counts at
 * once and reading the clock costs no system call more.
 *
 * Only gettimeofday is shifted: that is the clock by which Redis lets keys expire. What it measures its own work with
 * stays as it is, as it would on a host whose clock is set. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

static const int64_t *offset;

__attribute__((constructor)) static void map_offset(void) {
    const char *path = getenv("KILIT_CLOCK_OFFSET");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *mapped = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED) {
        perror("clock_shim: KILIT_CLOCK_OFFSET");
        _exit(1);
    }
    close(file);
    offset = mapped;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    int result = syscall(SYS_gettimeofday, time, zone);
    if (result == 0 && time && offset) {
        int64_t micros = time->tv_sec * INT64_C(1000000) + time->tv_usec + __atomic_load_n(offset, __ATOMIC_RELAXED);
        time->tv_sec = micros / 1000000;
        time->tv_usec = micros % 1000000;
    }
    return result;
}
