/* Tokens: each request takes one of its user's, and is dropped if there is none. A program hands them out
 * (heddle_steer::tokens): a rate for each user, and what the latency-critical users leave over to the others. */
#include <heddle.h>

HD_PARAM(user_offset, 15, 0, 127, "which byte of a request is its user");
HD_PARAM(pass, 0, 0, 1, "1: requests beyond the tokens are left to the kernel, 0: dropped");
HD_PARAM(spread, 1, 0, 1, "1: the others go to every executor in turn, 0: where the kernel likes");

struct user {
	s64 tokens;
	u64 spent, refused;
};

HD_MAP(users, struct user, 256);

static u32 next;

static u32 schedule(struct hd_in *in)
{
	u8 id;
	struct user *user = hd_load(in, hd_param(user_offset), &id) ? 0 : hd_at(users, id);

	if (!user)
		return HD_PASS;
	/* Taken first and checked then: two CPUs cannot spend the same token. */
	if (__sync_fetch_and_add(&user->tokens, -1) <= 0) {
		__sync_fetch_and_add(&user->tokens, 1);
		__sync_fetch_and_add(&user->refused, 1);
		return hd_param(pass) ? HD_PASS : HD_DROP;
	}
	__sync_fetch_and_add(&user->spent, 1);
	return hd_param(spread) ? next++ % hd_executors() : HD_PASS;
}
