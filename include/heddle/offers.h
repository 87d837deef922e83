/* What a `pick_next` sees and answers. Included by pick_next.h, which says how it is used; do not include it
 * directly. */
#ifndef HEDDLE_OFFERS_H
#define HEDDLE_OFFERS_H

/* The most offers that it sees. */
#define HD_OFFERS 16

/* Take the first; leave the CPU to the agent. */
#define HD_IN_ORDER 0xffffffffu
#define HD_NONE 0xfffffffeu

/* A thread that the CPU may take. 48 bytes. */
struct hd_offer {
	unsigned long long waited;  /* nanoseconds since it could run */
	unsigned long long runtime; /* its total time on CPUs, in nanoseconds */
	unsigned long long hint;    /* what the agent's policy says of it; 0 if nothing */
	unsigned int class;         /* 0: latency-critical, 1: best-effort, or another of the agent's */
	unsigned int weight;        /* the kernel's, 1 to 10000; 100 is nice 0 */
	unsigned int tid;
	unsigned int tgid;          /* its process */
	unsigned int cpu;           /* where it ran last */
	unsigned int own;           /* 1: offered to this CPU alone, 0: to its NUMA node */
};

/* What a CPU may take: first what was offered to it alone, then what was offered to its node, each in the agent's
 * order. It is a copy: changes have no effect. 784 bytes. */
struct hd_offers {
	unsigned long long now; /* nanoseconds of CLOCK_MONOTONIC */
	unsigned int cpu;       /* the CPU that takes one */
	unsigned int count;     /* 1 to HD_OFFERS */
	struct hd_offer offer[HD_OFFERS];
};

/* Between the kernel's programs of agents and the pick_next. 840 bytes. */
struct hd_pick {
	struct hd_offers offers;
	unsigned int answer;
	/* A compiler makes a loop's index a pointer, which is one offer further at the end. To those who may not read
	 * the kernel the verifier refuses a pointer behind the value, even if it is not used. */
	unsigned int spare[13];
};

#endif
