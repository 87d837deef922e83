/* Socket Select, if the chosen executor's socket is closed. If every socket of the group is an executor, the server
 * has fewer workers than before: the input goes to one of the remaining ones, a flow always to the same one
 * (rendezvous hashing). If the group has a socket that is not an executor, a worker has restarted and its socket
 * was not added: the select fails, and the kernel chooses among all of them, so that the new worker is served too. */
#include "reuseport.h"

/* observe.c */
extern u32 hd_group_size(u32 k);

/* Searches for present executors. The result goes to memory of which the verifier assumes nothing: it would follow
 * each value that a variable can have. */
HD_INLINE void look(struct hd_choice *choice, u32 hash)
{
	u32 n = hd_executors();

	for (u32 k = 0; k < HD_MAX_EXECUTORS && k < n; k++) {
		u32 size = hd_group_size(k);
		if (!size)
			continue;
		u32 weight = hd_mix((u64)k << 32 | hash) | 1;
		choice->there++;
		choice->group = size;
		if (weight > choice->weight) {
			choice->weight = weight;
			choice->instead = k;
		}
	}
}

HD_SECTION("main") int hd_main(struct sk_reuseport_md *ctx)
{
	struct hd_choice *choice = hd_at(hd_choice, 0);

	if (!choice)
		return SK_PASS;
	look(choice, ctx->hash);
	u32 gone = choice->executor, instead = choice->instead;
	int all_known = choice->there && choice->group <= choice->there;
	struct hd_count *count = hd_at(hd_counts, gone);
	if (all_known && count && select_socket(ctx, &hd_executor, &instead, 0) == 0) {
		hd_enforced(instead, 1);
		hd_count(count, 0, 1);
	} else {
		hd_enforced(gone, 0);
	}
	return SK_PASS;
}
