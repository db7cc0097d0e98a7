/* kvpager.h: includes the core. See cache.h for the manual, types.h for the words. */
#ifndef KVPAGER_H
#define KVPAGER_H

#include "types.h"
#include "hash.h"
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

#endif
