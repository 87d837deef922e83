/* A `pick_next`: not a steering policy, but linked, checked and verified as one. The kernel runs it at each call of the
 * function that stands for it among the programs of agents (bpf/sched/scx/pick.h), with which it shares `hd_picks`. */
#define HD_POLICY
#include "heddle.h"
#include "heddle/offers.h"

#define HD_KIND_PER_CPU 3

struct hd_map hd_picks HD_SECTION(".hd.maps") = {HD_KIND_PER_CPU, 4, sizeof(struct hd_pick), 1};
typedef struct hd_pick hd_picks_value;

/* The pick_next, which is linked in. See hooks.h for the other arguments. */
extern u32 hd_policy(struct hd_offers *offers, u64, u64, u64, u64);

HD_SECTION("main") int hd_main(void *ctx)
{
	struct hd_pick *pick = hd_at(hd_picks, 0);

	if (pick)
		pick->answer = hd_policy(&pick->offers, 0, 0, 0, 0);
	return 0;
}
