/* Heddle for C: one header for policies and for programs.
 *
 * A steering policy (compiled by `heddle steer check`, `heddle steer attach` or hd_deploy) gets the
 * vocabulary of policies; every other translation unit gets the calls of libheddle. */
#ifndef HEDDLE_H
#define HEDDLE_H

#ifdef HD_POLICY
#include "heddle/policy.h"
#else
#include "heddle/client.h"
#endif

#endif
