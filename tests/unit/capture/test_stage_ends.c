/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Stages (history=close): files are changed in stages, synced and closed, and that ends at any of its system calls.
 * After each step of a story a moment is noted; its expected state is computed from the steps alone.
 *
 * | the end is       | moments that were reached | the files                   | versions                              |
 * |------------------|---------------------------|-----------------------------|---------------------------------------|
 * | a kill           | exact                     | before or after the step    | one for each stage that changed its   |
 * |                  |                           |                             | file, ended or not                    |
 * | amid a write     | exact                     | of the user's write, a part | the same                              |
 * | a failure        | exact or refused          | before or after the step    | with a full disk, the same            |
 * | a power cut      | exact or refused; exact   | as the disk has them        |                                       |
 * |                  | if the file was synced    |                             |                                       |
 * |                  | and then left alone       |                             |                                       |
 *
 * Then the store is sound, and the next stage is recorded as ever.
 */
#include "disk_states.h"
#include "capture/stage.h"
#include "store/inflight/spans.h"
#include "store/inflight/stages.h"
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

enum act { WRITE, CUT, CLOSE, FSYNC, SYNC_ALL, FAILED };

struct step {
    enum act act;
    unsigned file; /* of `names` */
    uint64_t offset;
    const char *text; /* WRITE and FAILED */
};

#define STEPS_MAX 12

struct story {
    const char *name;
    unsigned others; /* so many other files have a stage under way, unchanged */
    bool used;      /* there were stages before: the tables exist */
    bool slow;      /* some time passes before each step */
    bool late;      /* the kernel's clock is late, as on a busy machine, and ticks before each step */
    bool died;      /* the daemon has died after the steps, and the work is the recovery */
    struct step steps[STEPS_MAX];
    unsigned count;
};

static const char *const names[] = {"f", "d/g"}; /* records of one are in no log of the other */
static const char *const contents[] = {"some text, which is longer", "a second file"};
#define FILES G_N_ELEMENTS(names)

static const struct story *story(void)
{
    return disk_data();
}

/* How far the work came; it outlives the process. */
static struct {
    unsigned steps;
    int64_t whens[STEPS_MAX];
    int64_t entered; /* a span, for the newest step */
} *done;

static int64_t since; /* before the first step */

/* ---- expectations ------------------------------------------------------------------------------- */

struct expected {
    char *present[FILES], *past[FILES]; /* `past`: what a moment after the last step shows */
    unsigned versions[FILES];
    bool touched[FILES], synced[FILES]; /* synced, and not changed since */
};

static char *changed(const char *text, const struct step *step)
{
    size_t length = strlen(text), end = step->offset + (step->act == WRITE ? strlen(step->text) : 0);
    char *ret = g_malloc0(MAX(length, end) + 1);

    memcpy(ret, text, length);
    if (step->act == WRITE)
        memcpy(ret + step->offset, step->text, strlen(step->text));
    else
        ret[step->offset] = 0;
    return ret;
}

/* After the first `count` steps. */
static struct expected expect(unsigned count)
{
    struct expected ret = {0};
    bool open[FILES] = {0};

    for (unsigned i = 0; i < FILES; i++) {
        ret.present[i] = g_strdup(contents[i]);
        ret.past[i] = g_strdup(contents[i]);
    }
    for (unsigned i = 0; i < count; i++) {
        const struct step *step = &story()->steps[i];
        char *text;

        switch (step->act) {
        case WRITE:
        case CUT:
            text = changed(ret.present[step->file], step);
            g_free(ret.present[step->file]);
            ret.present[step->file] = text;
            ret.versions[step->file] += !open[step->file];
            open[step->file] = ret.touched[step->file] = true;
            ret.synced[step->file] = false;
            break;
        case CLOSE:
        case FSYNC:
            g_free(ret.past[step->file]);
            ret.past[step->file] = g_strdup(ret.present[step->file]);
            open[step->file] = false;
            ret.synced[step->file] |= step->act == FSYNC;
            break;
        case SYNC_ALL:
            for (unsigned k = 0; k < FILES; k++)
                ret.synced[k] = true;
            break;
        case FAILED:
            ret.touched[step->file] = true;
            ret.synced[step->file] = false;
            break;
        }
    }
    return ret;
}

static void expected_clear(struct expected *expected)
{
    for (unsigned i = 0; i < FILES; i++) {
        g_free(expected->present[i]);
        g_free(expected->past[i]);
    }
}

/* ---- a clock that is late ------------------------------------------------------------------------- */

/* By how much, in nanoseconds: some ticks. */
static int64_t lag;

/* Instead of libc's. Times of files may come from a finer clock, which is not late (Linux 6.13). */
int clock_gettime(clockid_t id, struct timespec *ret)
{
    int64_t late;

    if (syscall(SYS_clock_gettime, id, ret) < 0)
        return -1;
    if (id == CLOCK_REALTIME_COARSE && lag > 0) {
        late = ret->tv_sec * WB_WHEN_SECOND + ret->tv_nsec - lag;
        *ret = (struct timespec){.tv_sec = late / WB_WHEN_SECOND, .tv_nsec = late % WB_WHEN_SECOND};
    }
    return 0;
}

static void wait_for_tick(void)
{
    for (int64_t now = wb_ctime_clock(); wb_ctime_clock() == now;)
        sched_yield();
}

/* ---- the work: as the daemon does it -------------------------------------------------------------- */

static struct wb_stage *stages[FILES];

static int change_content(unsigned file, const struct step *step)
{
    size_t length = step->act == CUT ? 0 : strlen(step->text);
    struct wb_overwrite overwrite = {.op = WB_OP_WRITE, .offset = step->offset, .length = length, .new_data = step->text};
    struct wb_change change;
    struct wb_target target;
    int fd = tree_target(&tree, names[file], O_RDWR, &target), r = 0;
    int64_t when;
    struct stat st;

    if (fstat(fd, &st) < 0)
        r = -errno;
    overwrite.size_after = MAX((uint64_t)st.st_size, overwrite.offset + length);
    if (step->act == CUT)
        overwrite = (struct wb_overwrite){.op = WB_OP_TRUNCATE, .offset = step->offset, .size_after = step->offset,
                                          .length = UINT64_MAX - step->offset};
    if (r == 0 && !stages[file])
        r = wb_stage_begin(&stages[file], tree.store, &target, fd, 0);
    if (r == 0)
        r = wb_stage_content(tree.store, &change, &target, stages[file], fd, &overwrite, 0);
    if (r >= 0) {
        r = step->act == FAILED ? -ENOSPC
            : step->act == CUT  ? (ftruncate(fd, (off_t)step->offset) < 0 ? -errno : 0)
                                : (pwrite(fd, step->text, length, (off_t)step->offset) < 0 ? -errno : 0);
        when = change.when;
        wb_stage_finish(stages[file], &overwrite, r);
        wb_capture_end(&change, r == -EIO ? 0 : r);
        if (r < 0)
            wb_stage_failed(stages[file], tree.store, fd, when, r);
    }
    close(fd);
    return step->act == FAILED && r == -ENOSPC ? 0 : r;
}

static int end_stage(unsigned file)
{
    struct wb_target target;
    int fd = tree_target(&tree, names[file], O_RDONLY, &target), r = 0;

    if (stages[file])
        r = wb_stage_end(tree.store, stages[file], &target);
    if (r == 0)
        stages[file] = NULL;
    close(fd);
    return r;
}

static int sync_file(unsigned file)
{
    struct wb_object object = tree_object(&tree, names[file]), root = tree_object(&tree, ".");
    int fd = openat(tree.fd, names[file], O_RDONLY | O_CLOEXEC), r;

    r = wb_stages_sync_begin(tree.store);
    if (r == 0) {
        wb_store_write_logs(tree.store);
        r = wb_store_sync_log(tree.store, object, WB_FILE_UNDO);
    }
    if (r == 0)
        r = wb_store_sync_log(tree.store, root, WB_FILE_CATALOG);
    if (r == 0)
        r = wb_store_sync_common(tree.store);
    if (r == 0 && fsync(fd) < 0)
        r = -errno;
    wb_stages_sync_end(tree.store);
    if (r == 0)
        wb_store_note_clean(tree.store, object);
    close(fd);
    return r;
}

static int do_step(const struct step *step)
{
    int r;

    done->entered = wb_ctime_clock();
    WB_IN_SPAN(tree.store);
    switch (step->act) {
    case WRITE:
    case CUT:
    case FAILED:
        return change_content(step->file, step);
    case CLOSE:
        return end_stage(step->file);
    case FSYNC:
        r = end_stage(step->file);
        return r < 0 ? r : sync_file(step->file);
    case SYNC_ALL:
        return wb_store_sync_content(tree.store);
    }
    return -EINVAL;
}

static int do_steps(void)
{
    int r = 0;

    lag = story()->late ? 20 * WB_WHEN_SECOND / 1000 : 0;
    /* What was there before counts as synced for longer than that. */
    if (story()->late)
        wb_ctime_next_tick();
    for (unsigned i = 0; r == 0 && i < story()->count; i++) {
        for (int64_t until = wb_ctime_clock() + 15 * WB_WHEN_SECOND / 1000; story()->slow && wb_ctime_clock() < until;)
            wb_ctime_next_tick();
        if (story()->late)
            wait_for_tick();
        r = do_step(&story()->steps[i]);
        if (r == 0) {
            done->whens[i] = wb_store_tick(tree.store);
            done->steps = i + 1;
        }
    }
    lag = 0;
    return r;
}

/* ---- the trial -------------------------------------------------------------------------------------- */

static void begin_others(void)
{
    for (unsigned i = 0; i < story()->others; i++) {
        g_autofree char *path = g_strdup_printf("other-%u", i);
        struct wb_stage *other;
        struct wb_target target;
        int fd = tree_target(&tree, path, O_RDONLY, &target);

        ck_assert_int_eq(wb_stage_begin(&other, tree.store, &target, fd, 0), 0);
        wb_stage_free(other);
        close(fd);
    }
}

/* The memory of a daemon that dies is lost. */
static void forget_stages(void)
{
    for (unsigned i = 0; i < FILES; i++)
        stages[i] = wb_stage_free(stages[i]);
}

static const char *prepare(void)
{
    memset(done, 0, sizeof(*done));
    tree_open(&tree);
    mkdirs("d", NULL);
    for (unsigned i = 0; i < FILES; i++)
        op_make(&tree, names[i], contents[i]);
    op_write(&tree, "f", 0, "SOME");
    op_write(&tree, "f", 0, "some");
    if (story()->used) {
        ck_assert_int_eq(do_step(&(struct step){WRITE, 0, 0, "SOME"}), 0);
        ck_assert_int_eq(do_step(&(struct step){WRITE, 0, 0, "some"}), 0);
        ck_assert_int_eq(do_step(&(struct step){CLOSE, 0, 0, NULL}), 0);
        done->entered = 0;
    }
    for (unsigned i = 0; i < story()->others; i++) {
        g_autofree char *path = g_strdup_printf("other-%u", i);

        close(openat(tree.fd, path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    }
    remember();
    since = g_array_index(states, struct state, 0).when;
    if (story()->died) {
        settle_store();
        tree_open_store(&tree);
        wb_spans_end_opening(tree.store);
        ck_assert_int_eq(do_steps(), 0);
        forget_stages();
    }
    settle_store();
    return tree.path;
}

static void begin(void)
{
    if (story()->died)
        return;
    enter_store();
    wb_spans_end_opening(tree.store);
    begin_others();
}

static int act(void)
{
    struct wb_error why;
    int r;

    if (!story()->died)
        return do_steps();
    r = wb_store_open(&tree.store, tree.fd, NULL, WB_STORE_WRITE, &why);
    if (r == 0)
        r = wb_recover(tree.store, NULL);
    tree.store = wb_store_free(tree.store);
    return r;
}

static char *content_at(const char *path, int64_t when, size_t *ret_length)
{
    struct wb_revision *revision;
    char *text = NULL;
    ssize_t n;
    int error;

    ck_assert_int_eq(wb_history_open(&history, tree.store), 0);
    revision = find(path, when, &error);
    if (revision) {
        text = content_of(revision, &n);
        if (n < 0)
            g_clear_pointer(&text, g_free);
        *ret_length = (size_t)MAX(n, 0);
        wb_revision_unref(revision);
    }
    history = wb_history_free(history);
    return text;
}

/*
 * Whether each byte is as the file had it at that moment or before, or zero, since bytes that were never synced may be
 * lost.
 */
static bool is_of_before(unsigned file, unsigned count, const char *text, size_t length)
{
    bool fits[PATH_MAX] = {0}, has_length = false;

    for (unsigned i = 0; i <= count; i++) {
        struct expected then = expect(i);
        size_t size = strlen(then.past[file]);

        has_length |= size == length;
        for (size_t at = 0; at < length; at++)
            fits[at] |= !text[at] || (at < size && text[at] == then.past[file][at]);
        expected_clear(&then);
    }
    for (size_t at = 0; at < length; at++)
        has_length &= fits[at];
    return has_length;
}

/* The process did not run for longer than what counts as recorded after a kill, between begin and end of a change. As
 * the end left it: later steps change these times. */
static bool was_late;

static bool find_late(void)
{
    struct wb_attrs attrs;

    for (unsigned i = 0; i < FILES && done->entered > 0; i++)
        if (wb_object_stat(tree.store, tree.fd, names[i], NULL, &attrs, NULL) == 0 &&
            attrs.ctime > done->entered + 4 * WB_WHEN_SECOND / 1000)
            return true;
    return false;
}

/* A failing disk may not take the end of a span, either. */
static bool may_refuse(const struct disk_end *end)
{
    return disk_is_cut(end) || (!end->ended && end->way >= DISK_FAIL) || was_late;
}

/* `count`: of steps before that moment. `sure`: it is exact. Otherwise it may be refused, or changes were lost. */
static void check_moment(const struct disk_end *end, unsigned file, unsigned count, bool sure)
{
    struct expected then = expect(count);
    size_t length = 0;
    g_autofree char *text = content_at(names[file], count ? done->whens[count - 1] : since, &length);

    states_exact += text != NULL;
    states_refused += text == NULL;
    ck_assert_msg(text || !sure, "%s: %s after step %u is refused (%s), and was %s", end->at, names[file], count,
                  wb_history_error(), then.past[file]);
    ck_assert_msg(!text || (length == strlen(then.past[file]) && strcmp(text, then.past[file]) == 0) ||
                      (!sure && disk_is_cut(end) && is_of_before(file, count, text, length)),
                  "%s: %s after step %u was %s, and now is %s", end->at, names[file], count, then.past[file], text);
    expected_clear(&then);
}

static void check_moments(const struct disk_end *end)
{
    struct expected before = expect(done->steps), after = expect(MIN(done->steps + 1, story()->count));

    for (unsigned i = 0; i <= done->steps; i++)
        for (unsigned k = 0; k < FILES; k++)
            check_moment(end, k, i, !may_refuse(end) || (before.synced[k] && after.synced[k]) || !after.touched[k]);
    expected_clear(&before);
    expected_clear(&after);
}

static unsigned count_stages(const char *path)
{
    struct wb_object object = tree_object(&tree, path);
    GPtrArray *records = tree_records(&tree);
    unsigned count = 0;

    for (guint i = 0; i < records->len; i++) {
        const struct kept *kept = records->pdata[i];

        count += !kept->aborted && kept->record.type == WB_REC_ATTR && kept->record.flags & WB_RECORD_STAGE &&
                 kept->record.when > since && wb_object_equal(kept->record.attr.object, object);
    }
    g_ptr_array_unref(records);
    return count;
}

/* The files are as before or after the step that was under way, and each stage that changed its file is a version. */
static void check_present(const struct disk_end *end, bool counts)
{
    struct expected before = expect(done->steps), after = expect(MIN(done->steps + 1, story()->count));

    for (unsigned k = 0; k < FILES; k++) {
        g_autofree char *path = g_strdup_printf("%s/%s", tree.path, names[k]), *text = NULL, *past = NULL;
        bool is_before, is_after;
        size_t length;

        ck_assert(g_file_get_contents(path, &text, NULL, NULL));
        is_before = strcmp(text, before.present[k]) == 0;
        is_after = strcmp(text, after.present[k]) == 0;
        ck_assert_msg(is_before || is_after, "%s: after %u steps %s is %s", end->at, done->steps, names[k], text);
        past = content_at(names[k], now(), &length);
        ck_assert_msg(past && strcmp(past, text) == 0, "%s: %s is %s, and in the history %s", end->at, names[k], text,
                      past);
        if (counts)
            ck_assert_msg(count_stages(names[k]) == (is_after ? after : before).versions[k],
                          "%s: after %u steps %s is %s, and there are %u versions of stages", end->at, done->steps,
                          names[k], text, count_stages(names[k]));
    }
    expected_clear(&before);
    expected_clear(&after);
}

/* The next stage is recorded as ever. */
static void check_next(const struct disk_end *end)
{
    const struct step write = {WRITE, 0, 0, "next"}, close = {CLOSE, 0, 0, NULL};
    g_autofree char *path = g_strdup_printf("%s/f", tree.path), *before = NULL, *after = NULL;
    int64_t whens[2];

    ck_assert(g_file_get_contents(path, &before, NULL, NULL));
    whens[0] = now();
    ck_assert_int_eq(do_step(&write), 0);
    whens[1] = now();
    ck_assert_int_eq(do_step(&close), 0);
    ck_assert(g_file_get_contents(path, &after, NULL, NULL));
    for (unsigned i = 0; i < 3; i++) {
        size_t length;
        g_autofree char *past = content_at("f", i < 2 ? whens[i] : now(), &length);

        ck_assert_msg(past && strcmp(past, i < 2 ? before : after) == 0, "%s: the next stage, moment %u: %s (%s)",
                      end->at, i, past, wb_history_error());
    }
}

static void check(const struct disk_end *end)
{
    if (end->way == DISK_STOP)
        check_reader(end, 0);
    if (disk_is_cut(end))
        another_boot();
    enter_store();
    was_late = find_late();
    check_states(end, 0, may_refuse(end));
    check_moments(end);
    if (!disk_is_cut(end) && !(end->way == DISK_TORN && (strstr(end->at, "(pwrite /f)") || strstr(end->at, "(pwrite /d/g)"))))
        check_present(end, end->way == DISK_STOP || end->way == DISK_TORN || end->way == DISK_FULL);
    check_next(end);
    check_moments(end);
    check_sound(end);
}

#define STEPS(...) .steps = {__VA_ARGS__}, .count = sizeof((const struct step[]){__VA_ARGS__}) / sizeof(struct step)

static const struct story stories[] = {
    {"overwrite", STEPS({WRITE, 0, 0, "other"}, {WRITE, 0, 5, "-text"}, {WRITE, 0, 0, "again"}, {CLOSE, 0})},
    {"grow", STEPS({WRITE, 0, 26, " and longer"}, {WRITE, 0, 37, " still"}, {CLOSE, 0})},
    {"grow again", .used = true, STEPS({WRITE, 0, 26, " and longer"}, {WRITE, 1, 0, "A"}, {CLOSE, 1}, {CLOSE, 0})},
    {"grow slowly", .slow = true, STEPS({WRITE, 0, 26, "1"}, {WRITE, 0, 27, "2"}, {WRITE, 0, 28, "3"}, {CLOSE, 0})},
    {"cut", STEPS({CUT, 0, 4}, {WRITE, 0, 4, " new text, and it is longer than before"}, {CLOSE, 0})},
    {"two stages", STEPS({WRITE, 0, 0, "other"}, {CLOSE, 0}, {WRITE, 0, 3, "THIRD"}, {CUT, 0, 6}, {CLOSE, 0})},
    {"two files", STEPS({WRITE, 0, 0, "other"}, {WRITE, 1, 13, " grows"}, {CLOSE, 0}, {WRITE, 1, 0, "A"}, {CLOSE, 1})},
    {"failed", STEPS({FAILED, 0, 0, "never"}, {CLOSE, 0}, {FAILED, 0, 3, "nor"}, {WRITE, 0, 26, "!"}, {CLOSE, 0})},
    {"fsync", STEPS({WRITE, 0, 0, "other"}, {WRITE, 0, 26, " grows"}, {FSYNC, 0}, {WRITE, 1, 0, "NOT"}, {CLOSE, 1})},
    {"fsync by a late clock", .late = true, STEPS({WRITE, 0, 0, "other"}, {FSYNC, 0}, {WRITE, 1, 0, "NOT"}, {CLOSE, 1})},
    {"fsync and change", STEPS({WRITE, 0, 26, " grows"}, {FSYNC, 0}, {WRITE, 0, 0, "other"}, {CLOSE, 0})},
    {"grown and synced", STEPS({WRITE, 0, 26, " grows"}, {SYNC_ALL}, {WRITE, 1, 13, "."}, {CLOSE, 1})},
    {"overwritten and synced", STEPS({WRITE, 0, 0, "other"}, {SYNC_ALL}, {WRITE, 0, 2, "THIRD"}, {CLOSE, 0})},
    {"table grows", .others = 64, STEPS({WRITE, 0, 26, " grows"}, {WRITE, 0, 0, "other"}, {CLOSE, 0})},
    {"recovery", .died = true, STEPS({WRITE, 0, 0, "other"}, {WRITE, 1, 13, " grows"}, {CUT, 0, 9})},
    {"recovery of nothing", .died = true, STEPS({FAILED, 0, 0, "other"}, {WRITE, 1, 13, " grows"})},
};

/* Few calls open the table that a daemon has left: each of them counts. */
static unsigned story_stride(int index)
{
    return stories[index].died ? 1 : 3;
}

START_TEST(an_end_anywhere_leaves_the_state_before_or_after)
{
    struct disk_trial trial = {.name = stories[_i].name, .ways = DISK_KILLS | DISK_FAILURES | DISK_ALL_CUTS,
                               .prepare = prepare, .begin = begin, .act = act, .check = check, .clean = clean_tree,
                               .dense_stride = story_stride(_i), .stride = 2 * story_stride(_i),
                               .data = &stories[_i]};
    unsigned runs;

    done = mmap(NULL, sizeof(*done), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    runs = disk_each_stop(&trial);
    ck_assert_uint_ge(runs, (unsigned)amount(3, 1));
    munmap(done, sizeof(*done));
    printf("%s: %u runs, %u exact, %u refused\n", trial.name, runs, states_exact, states_refused);
}
END_TEST

static const char *name_of(int i)
{
    return stories[i].name;
}

int main(void)
{
    return disk_run("stage_ends", an_end_anywhere_leaves_the_state_before_or_after, G_N_ELEMENTS(stories), name_of);
}
