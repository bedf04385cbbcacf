/* The data path of an RC connection as a C program would have it: buffers from a free list of the program's own, work
 * requests linked into one list a batch, every 32nd send signaled, wr_id naming the buffer. Posts and polls are the
 * inline functions of <infiniband/verbs.h>; control verbs come in a table, as this provider's are not libibverbs' own.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#define MESSAGE_BYTES 64
#define BUFFER_BYTES 256
#define BUFFERS 1152
#define DEPTH 64
#define BATCH_MAX 32
#define SIGNAL_EVERY 32

struct provider {
	struct ibv_device **(*get_device_list)(int *);
	struct ibv_context *(*open_device)(struct ibv_device *);
	struct ibv_pd *(*alloc_pd)(struct ibv_context *);
	struct ibv_mr *(*reg_mr)(struct ibv_pd *, void *, size_t, int);
	struct ibv_cq *(*create_cq)(struct ibv_context *, int, void *, struct ibv_comp_channel *, int);
	struct ibv_qp *(*create_qp)(struct ibv_pd *, struct ibv_qp_init_attr *);
	int (*modify_qp)(struct ibv_qp *, struct ibv_qp_attr *, int);
	int (*query_port)(struct ibv_context *, uint8_t, struct ibv_port_attr *);
};

struct side {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	char *memory;
	/* Buffers that nobody holds. */
	uint32_t free[BUFFERS];
	uint32_t free_count;
	uint32_t unsignaled;
	struct ibv_send_wr send[BATCH_MAX];
	struct ibv_recv_wr recv[BATCH_MAX];
	struct ibv_sge send_sge[BATCH_MAX], recv_sge[BATCH_MAX];
};

static struct side near, far;

static void need(int ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "%s: %s\n", what, strerror(errno));
		exit(1);
	}
}

static void open_side(const struct provider *v, struct side *s, int index)
{
	int count = 0;
	struct ibv_device **list = v->get_device_list(&count);
	need(list != NULL && count > index, "device list");
	s->context = v->open_device(list[index]);
	need(s->context != NULL, "open_device");
	s->pd = v->alloc_pd(s->context);
	need(s->pd != NULL, "alloc_pd");
	need(posix_memalign((void **)&s->memory, 4096, BUFFERS * BUFFER_BYTES) == 0, "memory");
	memset(s->memory, 0, BUFFERS * BUFFER_BYTES);
	s->mr = v->reg_mr(s->pd, s->memory, BUFFERS * BUFFER_BYTES, IBV_ACCESS_LOCAL_WRITE);
	need(s->mr != NULL, "reg_mr");
	s->cq = v->create_cq(s->context, 2 * DEPTH, NULL, NULL, 0);
	need(s->cq != NULL, "create_cq");
	struct ibv_qp_init_attr init = {
		.send_cq = s->cq,
		.recv_cq = s->cq,
		.cap = {.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 128},
		.qp_type = IBV_QPT_RC,
	};
	s->qp = v->create_qp(s->pd, &init);
	need(s->qp != NULL, "create_qp");
	for (uint32_t i = 0; i < BUFFERS; i++)
		s->free[s->free_count++] = i;
	for (int i = 0; i < BATCH_MAX; i++) {
		s->send_sge[i] = (struct ibv_sge){.length = MESSAGE_BYTES, .lkey = s->mr->lkey};
		s->recv_sge[i] = (struct ibv_sge){.length = BUFFER_BYTES, .lkey = s->mr->lkey};
		s->send[i] = (struct ibv_send_wr){.sg_list = &s->send_sge[i], .num_sge = 1, .opcode = IBV_WR_SEND};
		s->recv[i] = (struct ibv_recv_wr){.sg_list = &s->recv_sge[i], .num_sge = 1};
	}
}

static void connect_side(const struct provider *v, struct side *s, const struct side *peer)
{
	struct ibv_port_attr port;
	need(v->query_port(peer->context, 1, &port) == 0, "query_port");
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	need(v->modify_qp(s->qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0, "INIT");
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_4096,
		.dest_qp_num = peer->qp->qp_num,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 1,
		.ah_attr = {.dlid = port.lid, .port_num = 1},
	};
	need(v->modify_qp(s->qp, &rtr,
			  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0,
	     "RTR");
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
	need(v->modify_qp(s->qp, &rts,
			  IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				  IBV_QP_MAX_QP_RD_ATOMIC) == 0,
	     "RTS");
}

static void post_receives(struct side *s, int count)
{
	struct ibv_recv_wr *bad;
	for (int i = 0; i < count; i++) {
		uint32_t buffer = s->free[--s->free_count];
		s->recv[i].wr_id = buffer;
		s->recv[i].next = i + 1 < count ? &s->recv[i + 1] : NULL;
		s->recv_sge[i].addr = (uintptr_t)(s->memory + (size_t)buffer * BUFFER_BYTES);
	}
	need(ibv_post_recv(s->qp, s->recv, &bad) == 0, "post_recv");
}

static void post_sends(struct side *s, int count)
{
	struct ibv_send_wr *bad;
	for (int i = 0; i < count; i++) {
		uint32_t buffer = s->free[--s->free_count];
		int signaled = ++s->unsignaled >= SIGNAL_EVERY;
		if (signaled)
			s->unsignaled = 0;
		s->send[i].wr_id = buffer;
		s->send[i].next = i + 1 < count ? &s->send[i + 1] : NULL;
		s->send[i].send_flags = IBV_SEND_INLINE | (signaled ? IBV_SEND_SIGNALED : 0);
		s->send_sge[i].addr = (uintptr_t)(s->memory + (size_t)buffer * BUFFER_BYTES);
	}
	need(ibv_post_send(s->qp, s->send, &bad) == 0, "post_send");
	/* Inline: the buffers are free again. */
	for (int i = 0; i < count; i++)
		s->free[s->free_count++] = (uint32_t)s->send[i].wr_id;
}

/* Gives the messages that came; posts as many receives again once a batch is owed. */
static int poll_side(struct side *s, int *owed, int batch)
{
	struct ibv_wc wc[BATCH_MAX];
	int messages = 0, found = ibv_poll_cq(s->cq, BATCH_MAX, wc);
	for (int i = 0; i < found; i++) {
		need(wc[i].status == IBV_WC_SUCCESS, "completion");
		if (wc[i].opcode == IBV_WC_RECV) {
			need(wc[i].byte_len == MESSAGE_BYTES, "length");
			s->free[s->free_count++] = (uint32_t)wc[i].wr_id;
			messages++;
		}
	}
	*owed += messages;
	if (*owed >= batch) {
		post_receives(s, *owed);
		*owed = 0;
	}
	return messages;
}

/* As for lists, compiled for lists of one: a program for lone messages would have no loops. */
static __attribute__((noinline, flatten)) void one_by_one(uint64_t messages)
{
	int near_owed = 0, far_owed = 0;
	for (uint64_t i = 0; i < messages; i++) {
		post_sends(&near, 1);
		need(poll_side(&far, &far_owed, 1) == 1, "delivered at once");
		poll_side(&near, &near_owed, 1);
	}
}

int post_and_poll(const struct provider *v, uint64_t lists, int burst)
{
	int near_owed = 0, far_owed = 0;
	if (burst < 1 || burst > BATCH_MAX)
		return 1;
	open_side(v, &near, 0);
	open_side(v, &far, 1);
	connect_side(v, &near, &far);
	connect_side(v, &far, &near);
	for (int i = 0; i < DEPTH / BATCH_MAX; i++)
		post_receives(&far, BATCH_MAX);
	if (burst == 1) {
		one_by_one(lists);
		return 0;
	}
	for (uint64_t i = 0; i < lists; i++) {
		post_sends(&near, burst);
		need(poll_side(&far, &far_owed, burst) == burst, "delivered at once");
		poll_side(&near, &near_owed, burst);
	}
	return 0;
}
