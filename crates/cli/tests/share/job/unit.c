/* A unit of the compile job, by its number UNIT. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define JOIN(name, number) name##number
#define NAME(number) JOIN(unit, number)

int NAME(UNIT)(int seed)
{
	char text[64];
	snprintf(text, sizeof text, "%d of unit %d", seed, UNIT);
	return (int)strlen(text) * UNIT;
}
