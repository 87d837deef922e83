/* What the programs at reuseport groups share. */
#ifndef HD_REUSEPORT_H
#define HD_REUSEPORT_H

#include "hooks.h"

struct sk_reuseport_md {
	u64 data, data_end;
	u32 len, eth_protocol, ip_protocol, bind_inany, hash;
};

#define SK_DROP 0
#define SK_PASS 1

static long (*const select_socket)(void *ctx, void *map, void *key, u64 flags) = (void *)82;

HD_OWN_MAP(hd_executor, HD_KIND_REUSEPORT, 4, 8, HD_FEW);

/* The executor that the policy chose for the present input, for the program that is called if its socket is gone. */
struct hd_choice {
	u32 executor;
	/* For that program: the number of present executors, the number of sockets in their group, and the one it takes. */
	u32 there, group, instead, weight, spare;
};

HD_OWN_MAP(hd_choice, HD_KIND_PER_CPU, 4, sizeof(struct hd_choice), 1);
typedef struct hd_choice hd_choice_value;

#endif
