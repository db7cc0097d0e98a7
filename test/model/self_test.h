/* The oracle against the examples and sentences of the headers, without a cache. */
#ifndef KVP_TEST_MODEL_SELF_TEST_H
#define KVP_TEST_MODEL_SELF_TEST_H

/* Gives the program's exit status. */
int self_test_run(void);

#endif
