/* An audit of a spill between two calls: its lists, counts and marks, counted from its records. */
#ifndef KVP_TEST_SPILL_AUDIT_H
#define KVP_TEST_SPILL_AUDIT_H

#include <kvpager/spill.h>

/* What is wrong first; NULL: nothing is. */
const char *spill_audit(const kvp_spill *spill);

/* The same of the digests that blocks are marked with: they are made anew. */
const char *spill_audit_marks(const kvp_spill *spill);

#endif
