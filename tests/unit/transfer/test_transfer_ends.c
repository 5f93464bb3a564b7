/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A stream is received, or sent, and that ends at any system call of the receiver or the sender: by a kill, amid a
 * write, by a failure or a power cut.
 *
 * | the work            | afterwards                                                                               |
 * |---------------------|------------------------------------------------------------------------------------------|
 * | the whole received  | there is no copy, or a complete one: every state that was sent is exact, as is the tree   |
 * | a stream with newer | the copy is as before or after it, complete: no state is refused or missing              |
 * | changes received    |                                                                                          |
 * | the rest received   | the same; the part that had been received is used, or sent again                         |
 * | sent                | nothing in the source has changed; the same stream is sent again                         |
 *
 * In each case the same request completes, and vfsck finds nothing wrong.
 */
#include "disk_states.h"
#include "transfer/wire/frames.h"
#include "wayback/copy.h"
#include <sys/mman.h>

struct job {
    const char *name;
    bool updates;   /* the copy has the first stream */
    bool continues; /* and the first part of the stream */
    bool sends;
    unsigned stride;
};

static const struct job *job; /* the source is made before the trial begins */
static struct tree source;
static GBytes *streams[2];
static char *texts[2]; /* the tree at the end of each */
static int64_t untils[2];
static char top[200], copy[220];

/* ---- streams ----------------------------------------------------------------------------------------- */

static int64_t sent_until;

static int send_to(const char *from, const struct wb_copy_point *point, GBytes **ret)
{
    int fd = memfd_create("stream", MFD_CLOEXEC);
    struct wb_copy_result result;
    struct wb_error why = {""};
    struct stat st;
    void *data;
    int r = wb_copy_send(from, NULL, point, 0, fd, NULL, &result, &why);

    ck_assert_int_eq(fstat(fd, &st), 0);
    data = g_malloc((size_t)st.st_size + 1);
    ck_assert_int_eq(pread(fd, data, (size_t)st.st_size, 0), st.st_size);
    close(fd);
    *ret = g_bytes_new_take(data, (size_t)st.st_size);
    sent_until = result.until;
    return r;
}

static int receive(GBytes *stream, size_t length)
{
    int fd = memfd_create("stream", MFD_CLOEXEC), r;
    struct wb_copy_result result;
    struct wb_error why = {""};

    ck_assert_int_eq(write(fd, g_bytes_get_data(stream, NULL), length), (ssize_t)length);
    ck_assert_int_eq(lseek(fd, 0, SEEK_SET), 0);
    r = wb_copy_receive(copy, fd, NULL, &result, &why);
    close(fd);
    return r;
}

static struct wb_copy_result status_of(const char *at)
{
    struct wb_copy_result result = {0};
    struct wb_error why = {""};
    int r = wb_copy_status(copy, &result, &why);

    ck_assert_msg(r == 0, "%s: %d: %s", at, r, why.text);
    return result;
}

/* ---- the source -------------------------------------------------------------------------------------- */

static void end_stream(unsigned i)
{
    struct wb_copy_point from = {.since = i ? untils[0] : 0};

    remember();
    texts[i] = present_text();
    if (!job->sends)
        ck_assert_int_eq(send_to(tree.path, &from, &streams[i]), 0);
    untils[i] = sent_until;
}

static void make_source(void)
{
    tree_open(&tree);
    mkdirs("d", "d/e", NULL);
    op_make(&tree, "d/f", "some text, which is longer");
    op_make(&tree, "g", "a second file");
    remember();
    op_write(&tree, "d/f", 5, "TEXT");
    op_link(&tree, "d/f", "d/link");
    op_setxattr(&tree, "g", "user.x", "one");
    op_make(&tree, "gone", "deleted later");
    op_remove(&tree, "gone", false);
    end_stream(0);
    op_write(&tree, "d/f", 0, "SOME");
    op_rename(&tree, "g", "d/e/moved", 0);
    op_make(&tree, "g", "another");
    remember();
    op_truncate(&tree, "d/f", 10);
    op_chmod(&tree, "g", 0600);
    op_rename(&tree, "d/e", "e", 0);
    op_remove(&tree, "d/link", false);
    op_setxattr(&tree, "e/moved", "user.x", "two");
    op_rename(&tree, "g", "e/moved", 0);
    end_stream(1);
    settle_store();
    source = tree;
}

/* ---- the copy ------------------------------------------------------------------------------------------ */

static const char *prepare(void)
{
    const char *base = g_getenv("WAYBACK_TEST_DIR");

    if (job->sends) {
        make_source();
        return tree.path;
    }
    g_snprintf(top, sizeof(top), "%s/wayback-copy-XXXXXX", base ? base : "/var/tmp");
    ck_assert_ptr_nonnull(mkdtemp(top));
    g_snprintf(copy, sizeof(copy), "%s/copy", top);
    if (job->updates)
        ck_assert_int_eq(receive(streams[0], g_bytes_get_size(streams[0])), 0);
    if (job->continues)
        ck_assert_int_eq(receive(streams[1], g_bytes_get_size(streams[1]) * 2 / 3), -EBADMSG);
    wb_ctime_next_tick();
    return top;
}

static GBytes *stream_of_job(void)
{
    return streams[job->updates];
}

static int act(void)
{
    struct wb_copy_point from = {0};
    struct wb_copy_result result;
    struct wb_error why = {""};
    GBytes *stream = NULL;
    int r;

    if (job->sends)
        return send_to(tree.path, &from, &stream);
    if (!job->continues)
        return receive(stream_of_job(), g_bytes_get_size(stream_of_job()));
    r = wb_copy_status(copy, &result, &why);
    if (r == 0)
        r = send_to(source.path, &result.point, &stream);
    return r < 0 ? r : receive(stream, g_bytes_get_size(stream));
}

/* Each state up to `until`, and the tree. */
static void check_copy(const struct disk_end *end, int64_t until)
{
    g_autofree char *present = NULL;
    struct wb_error why = {""};

    g_strlcpy(tree.path, copy, sizeof(tree.path));
    tree.fd = open(copy, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_msg(wb_store_open(&tree.store, tree.fd, NULL, 0, &why) == 0, "%s: %s", end->at, why.text);
    for (guint i = 0; i < states->len; i++) {
        const struct state *state = &g_array_index(states, struct state, i);
        g_autofree char *found = NULL;

        if (state->when > until)
            continue;
        found = state_at(state->when);
        ck_assert_msg(strcmp(found, state->text) == 0, "%s: up to %" PRId64 ", state %u was\n%sand is\n%s(%s)", end->at,
                      until, i, state->text, found, wb_history_error());
        states_exact++;
    }
    present = present_text();
    ck_assert_msg(strcmp(present, texts[until >= untils[1]]) == 0, "%s: up to %" PRId64 " the tree was\n%sand is\n%s",
                  end->at, until, texts[until >= untils[1]], present);
    leave_store();
    close(tree.fd);
}

static void check_receiver(const struct disk_end *end)
{
    int64_t until = status_of(end->at).until;
    int i = until == 0 ? -1 : until >= untils[1];
    g_autofree char *wrong = NULL;

    ck_assert_msg(job->updates ? i >= 0 : i <= 0, "%s: it has all up to %" PRId64, end->at, until);
    ck_assert_msg(!end->ended || end->result < 0 || i == job->updates, "%s: received, and it has only %" PRId64,
                  end->at, until);
    if (i >= 0)
        check_copy(end, until);
    if (i != job->updates) {
        int r = act();

        ck_assert_msg(r == 0, "%s: the same again: %d", end->at, r);
        check_copy(end, status_of(end->at).until);
    }
    tree.fd = -1;
    wrong = findings();
    ck_assert_msg(!*wrong, "%s: vfsck finds\n%s", end->at, wrong);
}

static void check_sender(const struct disk_end *end)
{
    struct wb_copy_point from = {0};
    GBytes *again = NULL;
    int r;

    check_store(end, 0);
    leave_store();
    r = send_to(tree.path, &from, &again);
    ck_assert_msg(r == 0, "%s: the same again: %d", end->at, r);
    g_bytes_unref(again);
    enter_store();
    check_sound(end);
}

static void check(const struct disk_end *end)
{
    if (job->sends)
        check_sender(end);
    else
        check_receiver(end);
}

static void clean(void)
{
    if (job->sends) {
        clean_tree();
        for (unsigned i = 0; i < 2; i++)
            g_clear_pointer(&texts[i], g_free);
        return;
    }
    nftw(top, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static const struct job jobs[] = {
    {"receive the whole", .stride = 23},
    {"receive changes", .updates = true, .stride = 3},
    {"receive the rest", .updates = true, .continues = true, .stride = 7},
    {"send", .sends = true},
};

START_TEST(an_end_anywhere_leaves_the_copy_before_or_after)
{
    struct disk_trial trial = {.name = jobs[_i].name, .ways = DISK_KILLS | DISK_FAILURES | DISK_CUTS, .prepare = prepare,
                               .act = act, .check = check, .clean = clean, .stride = jobs[_i].stride,
                               .dense_stride = jobs[_i].stride};
    unsigned runs;

    job = &jobs[_i];
    if (!jobs[_i].sends)
        make_source();
    runs = disk_each_stop(&trial);
    ck_assert_uint_ge(runs, (unsigned)amount(3, 0));
    printf("%s: %u runs, %u exact, %u refused\n", trial.name, runs, states_exact, states_refused);
    if (!jobs[_i].sends) {
        tree = source;
        clean_tree();
    }
}
END_TEST

static const char *name_of(int i)
{
    return jobs[i].name;
}

int main(void)
{
    return disk_run("transfer_ends", an_end_anywhere_leaves_the_copy_before_or_after, G_N_ELEMENTS(jobs), name_of);
}
