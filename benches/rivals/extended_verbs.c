/* What a provider's library itself executes for a completion and for a work request, through the plain verbs and through the
 * extended ones (ibv_start_poll and its kin, ibv_wr_*). The provider is rdma_rxe's, compiled into this file against queues
 * in plain memory: nothing is sent, and the system call that ends a post fails at once on both sides. `extended-verbs` beside
 * this file builds it and counts.
 *
 * usage: extended_verbs none|poll|start_poll|post_send|wr_send BATCH
 */
#include RXE_C

#define ROUNDS 1000
#define BATCH_MAX 64

static struct {
    struct rxe_queue_buf queue;
    char elements[256 * 256];
} completions __attribute__((aligned(4096))), sends __attribute__((aligned(4096)));
static struct rxe_cq cq;
static struct rxe_qp qp;
static struct verbs_context context;
static struct ibv_wc wc[BATCH_MAX];
static struct ibv_send_wr wr[BATCH_MAX];
static struct ibv_sge sge[BATCH_MAX];
/* What is read goes somewhere, and what is written comes from somewhere. */
static volatile uint64_t sink;

static void make_queues(void)
{
    struct ibv_cq_ex *ex = &cq.vcq.cq_ex;
    struct ibv_qp_ex *wr_ex = &qp.vqp.qp_ex;

    completions.queue.log2_elem_size = 7;
    completions.queue.index_mask = 255;
    cq.queue = &completions.queue;
    pthread_spin_init(&cq.lock, PTHREAD_PROCESS_PRIVATE);
    ex->start_poll = cq_start_poll;
    ex->next_poll = cq_next_poll;
    ex->end_poll = cq_end_poll;
    ex->read_opcode = cq_read_opcode;
    ex->read_byte_len = cq_read_byte_len;
    ex->read_wc_flags = cq_read_wc_flags;

    sends.queue.log2_elem_size = 8;
    sends.queue.index_mask = 255;
    qp.sq.queue = &sends.queue;
    qp.sq.max_sge = 1;
    pthread_spin_init(&qp.sq.lock, PTHREAD_PROCESS_PRIVATE);
    context.context.cmd_fd = -1;
    qp.vqp.qp.context = &context.context;
    qp.vqp.qp.qp_type = IBV_QPT_RC;
    wr_ex->wr_start = wr_start;
    wr_ex->wr_send = wr_send;
    wr_ex->wr_set_sge = wr_set_sge;
    wr_ex->wr_complete = wr_complete;
}

/* The five fields that every completion is looked at for. */
static void plain_poll(int batch)
{
    uint64_t sum = 0;
    int got = rxe_poll_cq((struct ibv_cq *)&cq.vcq, batch, wc);

    for (int i = 0; i < got; i++)
        sum += wc[i].wr_id + wc[i].status + wc[i].byte_len + wc[i].opcode + wc[i].wc_flags;
    sink = sum;
}

static void extended_poll(int batch)
{
    struct ibv_cq_ex *ex = &cq.vcq.cq_ex;
    struct ibv_poll_cq_attr attr = {};
    uint64_t sum = 0;
    int got = 0;

    if (ibv_start_poll(ex, &attr))
        return;
    do {
        sum += ex->wr_id + ex->status + ibv_wc_read_byte_len(ex) + ibv_wc_read_opcode(ex) + ibv_wc_read_wc_flags(ex);
    } while (++got < batch && ibv_next_poll(ex) == 0);
    ibv_end_poll(ex);
    sink = sum;
}

static unsigned int flags_of(int i)
{
    return i % 32 == 31 ? IBV_SEND_SIGNALED : 0;
}

static void plain_post(int batch)
{
    struct ibv_send_wr *bad;

    for (int i = 0; i < batch; i++) {
        sge[i] = (struct ibv_sge){ .addr = sink + i, .length = 64, .lkey = 7 };
        wr[i].wr_id = i;
        wr[i].next = i + 1 < batch ? &wr[i + 1] : NULL;
        wr[i].sg_list = &sge[i];
        wr[i].num_sge = 1;
        wr[i].opcode = IBV_WR_SEND;
        wr[i].send_flags = flags_of(i);
    }
    rxe_post_send(&qp.vqp.qp, wr, &bad);
}

static void extended_post(int batch)
{
    struct ibv_qp_ex *ex = &qp.vqp.qp_ex;

    ibv_wr_start(ex);
    for (int i = 0; i < batch; i++) {
        ex->wr_id = i;
        ex->wr_flags = flags_of(i);
        ibv_wr_send(ex);
        ibv_wr_set_sge(ex, 7, sink + i, 64);
    }
    ibv_wr_complete(ex);
}

static void nothing(int batch)
{
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(int batch);
    } ways[] = { { "none", nothing }, { "poll", plain_poll }, { "start_poll", extended_poll },
                 { "post_send", plain_post }, { "wr_send", extended_post } };
    int batch = argc > 2 ? atoi(argv[2]) : 0;

    make_queues();
    for (unsigned int w = 0; argc > 2 && w < sizeof(ways) / sizeof(ways[0]); w++) {
        if (strcmp(argv[1], ways[w].name) != 0 || batch < 1 || batch > BATCH_MAX)
            continue;
        for (int round = 0; round < ROUNDS; round++) {
            completions.queue.producer_index = (completions.queue.consumer_index + batch) & 255;
            sends.queue.consumer_index = sends.queue.producer_index;
            ways[w].run(batch);
        }
        /* Whoever polled took all. */
        return strstr(argv[1], "poll") && completions.queue.producer_index != completions.queue.consumer_index;
    }
    return 2;
}
