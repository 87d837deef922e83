/* The vocabulary of steering policies.
 *
 * A policy is one C function that matches an input (a packet, a datagram, a connection, a request) to an
 * executor (a socket, a core, a queue):
 *
 *     #include <heddle.h>
 *
 *     static u32 next;
 *
 *     static u32 schedule(struct hd_in *in)
 *     {
 *         return next++ % hd_executors();
 *     }
 *
 * It returns the index of an executor, HD_PASS for the kernel's own choice, or HD_DROP. The same source runs
 * at every hook. It sees the first HD_WINDOW bytes of the input's payload and nothing else, so it needs no
 * bounds checks. Loops must have a constant bound, for example HD_MAX_EXECUTORS. There is no C library. */
#ifndef HEDDLE_POLICY_H
#define HEDDLE_POLICY_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char s8;
typedef short s16;
typedef int s32;
typedef long long s64;

/* Leave the choice to the kernel; drop the input. */
#define HD_PASS 0xffffffffu
#define HD_DROP 0xfffffffeu

/* The most executors that a policy can have: a bound for loops over them. */
#define HD_MAX_EXECUTORS 1024

/* How many bytes of the payload a policy sees. */
#define HD_WINDOW 128

/* An input. Integers are in the machine's byte order. */
struct hd_in {
	u32 length;	     /* of the payload, which may exceed the window; 0 for a connection */
	u32 hash;	     /* of the flow: equal for all packets of one connection or peer */
	u16 source_port;
	u16 destination_port;
	u8 protocol;	     /* 6: TCP, 17: UDP */
	u8 family;	     /* 4 or 6 */
	u16 seen;	     /* how many bytes of the payload are in `window` */
	u8 window[HD_WINDOW] __attribute__((aligned(8)));
};

/* An executor's line, shared with the policy: a cache line each. The program that serves the executor may
 * write it at any time (hd_busy, hd_idle), and so may the policy. */
struct hd_line {
	u32 class;	     /* of its current work, in the program's numbering; 0: none */
	u32 cpu;	     /* the number of the CPU that it runs on, plus one; 0: unknown */
	u64 word[6];	     /* for the policy and the program to agree on */
	u32 thread;	     /* gettid() of the thread that serves the executor; 0: unknown. Agents read it */
	u32 spare;	     /* 0 */
};

#define HD_INLINE static inline __attribute__((always_inline, unused))
#define HD_SECTION(name) __attribute__((section(name), used))

/* A parameter: set when the policy is deployed (`heddle steer attach --policy sita:scan=2`), then constant. */
struct hd_param {
	u64 value, least, most;
	char name[24], meaning[80];
};

/* Declares a parameter: `HD_PARAM(scan, 3, 0, 255, "the type of the long requests")`. On the command line,
 * underscores in its name are dashes; a value outside `least` to `most` is refused. */
#define HD_PARAM(name, value, least, most, meaning)                                               \
	static HD_PARAM_KIND struct hd_param name##_param HD_SECTION(HD_PARAM_SECTION) = {        \
		value, least, most, #name, meaning}

/* The value of a parameter. */
#define hd_param(name) (name##_param.value)

#if defined(__bpf__)
#include "heddle/policy_kernel.h"
#else
#include "heddle/policy_native.h"
#endif

/* Returns how many executors there are. Indices below that are assigned, though an executor may be gone.
 * Never 0 while inputs come. */
static inline u32 hd_executors(void)
{
	u32 n = hd_control.executors;
	return n > 0 && n <= HD_MAX_EXECUTORS ? n : 1;
}

HD_INLINE int hd_copy(const struct hd_in *in, u32 offset, void *to, u32 size)
{
	u8 *out = to;
	int there = size <= HD_WINDOW && offset <= HD_WINDOW - size && offset + size <= in->seen;

	for (u32 i = 0; i < size; i++)
		out[i] = there ? in->window[(offset + i) & (HD_WINDOW - 1)] : 0;
	return there ? 0 : -1;
}

/* Copies bytes of the payload, starting at `offset`, to *to. Returns 0, or -1 (and writes zeroes) if not all
 * of them are there. */
#define hd_load(in, offset, to) hd_copy((in), (offset), (to), sizeof *(to))

/* Returns the flow's hash. */
static inline u32 hd_hash(const struct hd_in *in)
{
	return in->hash;
}

/* Mixes 64 bits, for keys that an application assigns in order. */
static inline u32 hd_mix(u64 key)
{
	key ^= key >> 33;
	key *= 0xff51afd7ed558ccdull;
	key ^= key >> 33;
	key *= 0xc4ceb9fe1a85ec53ull;
	return (u32)(key >> 32);
}

#endif
