/* Ends the program, after saying what is not so. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <heddle.h>

#define CHECK(what)                                                                                     \
	do {                                                                                            \
		if (!(what)) {                                                                          \
			printf("line %d: %s: %s (%s)\n", __LINE__, #what, hd_error(), strerror(errno)); \
			exit(1);                                                                        \
		}                                                                                       \
	} while (0)

#endif
