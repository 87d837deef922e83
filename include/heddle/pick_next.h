/* The vocabulary of a `pick_next`, with which the user of an agent decides which of the threads that the agent offers a
 * CPU takes (docs/agents/policies.md):
 *
 *     #include <heddle/pick_next.h>
 *
 *     static u32 pick_next(struct hd_offers *offers)
 *     {
 *         u32 longest = 0;
 *
 *         for (u32 i = 1; i < HD_OFFERS && i < offers->count; i++)
 *             if (offers->offer[i].waited > offers->offer[longest].waited)
 *                 longest = i;
 *         return longest;
 *     }
 *
 * It runs in the kernel while a CPU has nothing to run. It returns the index of an offer, HD_IN_ORDER or HD_NONE. Any
 * other answer counts as a wrong one and as HD_IN_ORDER. Loops need a constant bound (HD_OFFERS). Variables, maps,
 * parameters, hd_now and hd_random are those of steering policies (policy.h); there are no executors and no inputs. */
#ifndef HEDDLE_PICK_NEXT_H
#define HEDDLE_PICK_NEXT_H

#include "policy.h"
#include "offers.h"

#endif
