/* The floor: what a durable publish costs if nothing is done but the system calls that it cannot do without.
 *
 * floor requests DIR COUNT GROUP EVENT_BYTES RESPONSE_BYTES REQUEST_BYTES
 *     Makes COUNT request files (not counted), then, in groups of GROUP: open, fstat, read, close each; one append of GROUP x EVENT_BYTES
 *     and one fdatasync; then for each: create a response, write, close, rename, and unlink the request.
 *     Prints: <CPU microseconds per request> <requests per second>
 * floor sync DIR MILLISECONDS EVENT_BYTES
 *     Appends EVENT_BYTES and syncs, over and over. Prints: <syncs per second> <median microseconds of one>
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static void check(int ok, const char *what) {
    if (!ok) {
        perror(what);
        exit(1);
    }
}

static double wall_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

static double cpu_s(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static int open_directory(int parent, const char *name) {
    mkdirat(parent, name, 0700); /* it may be there */
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    check(fd >= 0, name);
    return fd;
}

static void put(int directory, const char *name, const char *data, size_t bytes) {
    char temporary[96];
    snprintf(temporary, sizeof temporary, "%s.tmp", name);
    int fd = openat(directory, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    check(fd >= 0, "create");
    check(write(fd, data, bytes) == (ssize_t)bytes, "write");
    close(fd);
    check(renameat(directory, temporary, directory, name) == 0, "rename");
}

static void name_of(char *name, size_t bytes, long number) { snprintf(name, bytes, "%020ld-floor.json", number); }

static int open_journal(int base) {
    int fd = openat(base, "journal.jsonl", O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    check(fd >= 0, "journal");
    return fd;
}

static void serve(int base, long count, long group, size_t event, size_t response, size_t request) {
    int requests = open_directory(base, "requests"), responses = open_directory(base, "responses");
    int journal = open_journal(base);
    size_t largest = event * (size_t)group + response + request;
    char *data = malloc(largest), *buffer = malloc(largest), name[80];
    struct stat found;
    memset(data, 'x', largest);
    for (long i = 0; i < count; i++) {
        name_of(name, sizeof name, i);
        put(requests, name, data, request);
    }
    double cpu = cpu_s(), wall = wall_s();
    for (long begin = 0; begin < count; begin += group) {
        long end = begin + group < count ? begin + group : count;
        for (long i = begin; i < end; i++) {
            name_of(name, sizeof name, i);
            int fd = openat(requests, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
            check(fd >= 0, "open");
            check(fstat(fd, &found) == 0, "fstat");
            check(read(fd, buffer, largest) == (ssize_t)request, "read");
            close(fd);
        }
        size_t bytes = event * (size_t)(end - begin);
        check(write(journal, data, bytes) == (ssize_t)bytes, "append");
        check(fdatasync(journal) == 0, "fdatasync");
        for (long i = begin; i < end; i++) {
            name_of(name, sizeof name, i);
            put(responses, name, data, response);
            check(unlinkat(requests, name, 0) == 0, "unlink");
        }
    }
    printf("%.2f %.0f\n", (cpu_s() - cpu) / count * 1e6, count / (wall_s() - wall));
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void sync_only(int base, long milliseconds, size_t event) {
    int journal = open_journal(base);
    char *data = malloc(event);
    long room = 1 << 20, count = 0;
    double *took = malloc(sizeof(double) * room), begin = wall_s(), before = begin;
    memset(data, 'x', event);
    while (before - begin < milliseconds / 1e3 && count < room) {
        check(write(journal, data, event) == (ssize_t)event, "append");
        check(fdatasync(journal) == 0, "fdatasync");
        double now = wall_s();
        took[count++] = now - before;
        before = now;
    }
    qsort(took, count, sizeof(double), ascending);
    printf("%.0f %.1f\n", count / (before - begin), took[count / 2] * 1e6);
}

int main(int argc, char **argv) {
    int base = argc > 2 ? open(argv[2], O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (base >= 0 && argc == 8 && !strcmp(argv[1], "requests")) {
        serve(base, atol(argv[3]), atol(argv[4]), atol(argv[5]), atol(argv[6]), atol(argv[7]));
    } else if (base >= 0 && argc == 5 && !strcmp(argv[1], "sync")) {
        sync_only(base, atol(argv[3]), atol(argv[4]));
    } else {
        fprintf(stderr, "floor requests DIR COUNT GROUP EVENT_BYTES RESPONSE_BYTES REQUEST_BYTES | floor sync DIR MS EVENT_BYTES\n");
        return 2;
    }
    return 0;
}
