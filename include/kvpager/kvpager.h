/* kvpager.h: includes the core. See cache.h for the manual, types.h for the words. */
#ifndef KVPAGER_H
#define KVPAGER_H

#include "types.h"
#include "hash.h"
#include "cache.h"
#include "record.h"
#include "swap.h"
#include "steps.h"
#include "events.h"
#include "windows.h"
#include "trees.h"
#include "snapshot.h"
#include "inspect.h"

#endif
