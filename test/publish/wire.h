/* wire: a publisher and its readers in one test: what goes over the wire as short texts.
 *
 *   "+G a:bc"   units b and c are announced on the device, behind a    "+G:a" from the beginning
 *   "-C:cb"     units c and b are removed from the host               "clear"
 *
 * Media are G, C, S (GPU, CPU, STORAGE), units the letters of wire_unit. Events of a batch are
 * separated by blanks; batches by " | ".
 */
#ifndef PUBLISH_WIRE_H
#define PUBLISH_WIRE_H

#include <kvpager/all.h>
#include <kvpager/publish.h>

#include "mocka.h"

enum { WIRE_U = 4, WIRE_UNITS = 26, WIRE_TEXT = 4096, WIRE_MESSAGE = 1 << 17 };

struct wire {
    kvp_publisher *publisher;
    void *zmq;
    void *sub;
    void *dealer;
    uint64_t now;
    uint64_t newest;  /* number of the last batch that was read; 0: none */
    uint64_t cleared; /* how often wire_open cleared everything */
    int is_plain;     /* answers are without the topic */
    char text[WIRE_TEXT];
    uint8_t payload[WIRE_MESSAGE]; /* of the last batch */
    size_t payload_bytes;
    /* Units by letter. */
    kvp_event units[WIRE_UNITS];
    int32_t tokens[WIRE_UNITS][WIRE_U];
};

/* A configuration for tests: ports that the system chooses, numbers from 1000 on, no heartbeat. */
kvp_publisher_config wire_config(void);

/* Open a publisher, and readers that it knows. */
void wire_open(struct wire *wire, const kvp_publisher_config *config);
void wire_close(struct wire *wire);

/* Unit `name` behind unit `before`, or with '\0' first in namespace `space`: tokens name, name + 1,
 * ...; with a key unless NULL. */
void wire_unit(struct wire *wire, char name, char before, const char *space, const kvp_key *key);

/* Put events, "+G:abc" style without parents: "+Gabc -Cb !m clear" (!m: the namespace m is
 * cleared), and read what goes out. */
const char *wire_put(struct wire *wire, const char *events);
void wire_put_only(struct wire *wire, const char *events);

/* What has gone out since the last read. */
const char *wire_read(struct wire *wire);

/* Read what has gone out, without a text: the last batch's bytes are in `payload`. */
void wire_skip(struct wire *wire);

/* Ask for batches from a number on: "1003 +G:a | 1004 " up to the end. */
const char *wire_ask(struct wire *wire, uint64_t number);
void wire_request(struct wire *wire, uint64_t number);

/* Work until a message of the answer comes; 0: it was the end. */
int wire_take_answer(struct wire *wire, uint64_t *out_number);

/* What the wire calls unit `name`. */
uint64_t wire_number(const struct wire *wire, char name);

#endif
