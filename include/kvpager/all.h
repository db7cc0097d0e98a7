/* kvpager/all.h: every header of libkvpager's caches. kvpager.h is the front door; include that and
 * the headers of the features that you use instead, and a reader sees which ones those are. */
#ifndef KVPAGER_ALL_H
#define KVPAGER_ALL_H

#include "types.h"
#include "hash.h"
#include "kvpager.h"
#include "cache.h"
#include "recording.h"
#include "drop.h"
#include "swap.h"
#include "lend.h"
#include "steps.h"
#include "events.h"
#include "windows.h"
#include "trees.h"
#include "states.h"
#include "quotas.h"
#include "policy.h"
#include "snapshot.h"
#include "inspect.h"
#include "recover.h"
#include "seed.h"
#include "reasons.h"

#endif
