/* Replaces observe.c in the hook strict.c, which may not read kernel memory: the values do not matter there. */
#include "hooks.h"

__attribute__((noinline)) u32 hd_qlen(u32 k)
{
	return hd_random();
}

__attribute__((noinline)) u32 hd_idle(u32 k)
{
	return hd_random();
}
