/* What the test programs share: a check that names what was wrong. */
#ifndef CHECK_H
#define CHECK_H
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
#endif
