/* What the test programs share: checks that name what was wrong, and a clock. */
#ifndef CHECK_H
#define CHECK_H
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Ends the program unless `condition` holds. */
#define CHECK(condition)                                                                \
    do {                                                                                \
        if (!(condition)) {                                                             \
            int error = errno;                                                          \
            printf("%s:%d: %s (errno %s)\n", __FILE__, __LINE__, #condition, strerror(error)); \
            fflush(stdout);                                                             \
            _Exit(1);                                                                   \
        }                                                                               \
    } while (0)

/* Ends the program unless `call` returns `expected`. */
#define IS(call, expected)                                                              \
    do {                                                                                \
        long got = (long)(call);                                                        \
        if (got != (long)(expected)) {                                                  \
            printf("%s:%d: %s is %ld, not %ld\n", __FILE__, __LINE__, #call, got, (long)(expected)); \
            fflush(stdout);                                                             \
            _Exit(1);                                                                   \
        }                                                                               \
    } while (0)

/* Returns the time on a clock that only goes forward, in milliseconds. */
static inline long ms_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}
#endif
