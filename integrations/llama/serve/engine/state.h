/* state: what the page shows, as JSON. The engine's thread makes it between two steps. */
#ifndef KVPI_SERVE_STATE_H
#define KVPI_SERVE_STATE_H

struct kvpi_loop;

/* Gives the text; free it. NULL: no memory. */
char *kvpi_state_json(const struct kvpi_loop *loop);

/* Names a KVP_STOP_..., as clients see it. */
const char *kvpi_state_stop_name(unsigned stop);

#endif
