/* In place of observe.c in the frame strict.c, which may not read the kernel's memory: a policy may be told anything. */
#include "hooks.h"

__attribute__((noinline)) u32 hd_qlen(u32 k)
{
	return hd_random();
}

__attribute__((noinline)) u32 hd_idle(u32 k)
{
	return hd_random();
}
