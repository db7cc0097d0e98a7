/* The shadow must be able to fail: every planted defect is found, and nothing without one. */
#ifndef KVP_TEST_SHADOW_SELF_TEST_H
#define KVP_TEST_SHADOW_SELF_TEST_H

/* Prints what was found where; returns an exit status. */
int self_test_run(void);

#endif
