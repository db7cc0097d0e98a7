/* Which calls an operation log has: those of the table that writer and reader are made from. */
#ifndef KVP_TEST_OPLOG_CALLS_H
#define KVP_TEST_OPLOG_CALLS_H

#include <kvpager/oplog.h>

static inline int oplog_has_call(uint32_t op)
{
    switch (op) {
#define LOG_CALL_BY_HAND(NAME, name, parameters, arguments, results) case KVP_CALL_##NAME:
#include "core/record/calls.def"
        return 1;
    default: return 0;
    }
}

#endif
