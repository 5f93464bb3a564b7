/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/jobs/survey.h"

#include "base/cleanup.h"
#include "base/dir.h"
#include "capture/unseen.h"
#include "daemon/core/entry.h"
#include "daemon/system/report.h"
#include "store/directory/shard.h"
#include "store/inflight/lost_content.h"
#include "store/inflight/spans.h"
#include "time/ctime_clock.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define NICE 19
/* A descriptor each. What is deeper is marked when it is looked up; the floor stays where it is then. */
#define DEPTH_MAX 64

static int64_t ctime_of(const struct stat *st)
{
    return st->st_ctim.tv_sec * WB_WHEN_SECOND + st->st_ctim.tv_nsec;
}

void wb_survey_root(struct wb_session *session)
{
    struct wb_inode *root = session->nodes.root;
    struct wb_dir dir = wb_inode_dir(root, -1);
    struct stat st;

    if (fstat(session->src_fd, &st) == 0 &&
        wb_capture_unseen(session->store, root->node.object, &dir, NULL, ctime_of(&st)) > 0)
        atomic_fetch_add(&session->unseen, 1);
    wb_inode_learn(root, &dir);
}

/* ---- the rest of the tree ---------------------------------------------------------------------- */

struct survey {
    struct wb_session *session;
    bool incomplete; /* something could not be looked at, or may have moved past us */
};

static bool is_stopped(struct wb_session *session)
{
    return __atomic_load_n(&session->threads.stop, __ATOMIC_RELAXED);
}

/* `self`: of a directory, else NULL; `parent`: of any other object that has a name, else NULL. */
static void mark(struct survey *survey, struct wb_object object, struct wb_dir *self, struct wb_dir *parent,
                 const char *name, const struct stat *st)
{
    struct wb_session *session = survey->session;
    int r;

    if (wb_spans_has(session->store, ctime_of(st), self != NULL))
        return;
    wb_relocate_lock_shared(session);
    wb_ns_lock_unrecorded(session);
    r = self || !parent ? wb_capture_unseen(session->store, object, self, NULL, ctime_of(st))
                        : wb_capture_unseen_entry(session->store, object, parent, name, ctime_of(st));
    wb_ns_unlock_unrecorded(session);
    wb_relocate_unlock(&session);
    if (r > 0)
        atomic_fetch_add(&survey->session->unseen, 1);
    survey->incomplete |= r < 0;
}

/* Nobody asked for this look: the time of access stays, where whoever runs this may say so. */
static DIR *open_unnoticed(int dir_fd)
{
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_NOATIME | O_CLOEXEC);

    return fd < 0 ? wb_opendir_at(dir_fd, ".") : wb_opendir_of(fd);
}

/* A name that comes or goes meanwhile may be met or not: that change is recorded. */
static void look_at(struct survey *survey, struct wb_dir *dir, unsigned depth)
{
    struct wb_session *session = survey->session;
    _cleanup_closedir_ DIR *stream = open_unnoticed(dir->fd);
    struct dirent *entry;
    int r = 0;

    survey->incomplete |= !stream;
    while (stream && !is_stopped(session) && wb_next_entry(stream, &entry, &r)) {
        struct wb_object object;
        struct stat st;

        if (!dir->parent && wb_name_is_hidden(session, session->nodes.root, entry->d_name))
            continue;
        int seen = wb_object_stat(session->store, dirfd(stream), entry->d_name, &object, NULL, &st);

        if (seen < 0) {
            survey->incomplete |= seen != -ENOENT && seen != -EXDEV;
            continue;
        }
        if (S_ISDIR(st.st_mode)) {
            _cleanup_close_ int fd =
                openat(dirfd(stream), entry->d_name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            struct wb_dir below = {.object = object, .parent = dir, .name = entry->d_name, .fd = fd};

            mark(survey, object, &below, NULL, NULL, &st);
            if (fd >= 0 && depth < DEPTH_MAX)
                look_at(survey, &below, depth + 1);
            else
                survey->incomplete = true;
        } else {
            mark(survey, object, NULL, dir, entry->d_name, &st);
        }
    }
    survey->incomplete |= r < 0;
}

/* A file that lost a name is in the graveyard, and may have had others, through which it was changed. */
static int mark_lost_content(struct survey *survey, struct wb_object object, const char *path)
{
    struct wb_session *session = survey->session;
    _cleanup_close_ int fd = -1;
    int r;

    if (session->store->lost_until == 0)
        return 0;
    fd = openat(session->store->grave_fd, path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    wb_relocate_lock_shared(session);
    wb_ns_lock_unrecorded(session);
    r = wb_capture_lost_content(session->store, object, fd);
    wb_ns_unlock_unrecorded(session);
    wb_relocate_unlock(&session);
    return r;
}

static int look_at_body(void *data, int fd, const char *name)
{
    struct survey *survey = data;
    struct wb_store *store = survey->session->store;
    enum wb_object_file file;
    struct wb_object object, found;
    char path[WB_OBJECT_PATH_MAX];
    struct stat st;
    int r;

    if (is_stopped(survey->session))
        return -ECANCELED;
    if (wb_object_file_parse(name, &object, &file) < 0 || file != WB_FILE_DATA)
        return 0;
    wb_object_path(object, file, path);
    r = wb_object_stat(store, store->grave_fd, path, &found, NULL, &st);
    if (r == 0 && wb_object_equal(found, object)) {
        mark(survey, object, NULL, NULL, NULL, &st);
        r = mark_lost_content(survey, object, path);
    }
    survey->incomplete |= r < 0 && r != -ENOENT && r != -EXDEV;
    return 0;
}

static void look_at_graveyard(struct survey *survey)
{
    int r = 0;

    for (unsigned shard = 0; r == 0 && shard < WB_SHARDS && survey->session->store->grave_fd >= 0; shard++)
        r = wb_shard_each(survey->session->store->grave_fd, shard, look_at_body, survey);
    survey->incomplete |= r < 0;
}

static void *look_at_tree(void *data)
{
    struct wb_session *session = data;
    struct survey survey = {.session = session};
    struct wb_dir root = wb_inode_dir(session->nodes.root, session->src_fd);
    int64_t begun = wb_ctime_clock();
    unsigned moves = atomic_load(&session->store->dir_moves), unseen;

    setpriority(PRIO_PROCESS, (id_t)gettid(), NICE);
    look_at(&survey, &root, 0);
    look_at_graveyard(&survey);
    unseen = atomic_load(&session->unseen);
    if (unseen > 0)
        wb_log_msg("%s: %u %s changed while Wayback did not record: states between the last recorded change and "
                   "this mount are not known (vstat shows the gap)",
                   session->source, unseen, unseen == 1 ? "object was" : "objects were");
    if (survey.incomplete || is_stopped(session) || moves != atomic_load(&session->store->dir_moves))
        return NULL;
    atomic_store(&session->surveyed, true);
    wb_relocate_lock_shared(session);
    wb_lost_content_forget(session->store, begun);
    /* Where it cannot be written, old spans are kept for longer. */
    if (wb_spans_raise_floor(session->store, begun) < 0)
        errno = 0;
    wb_relocate_unlock(&session);
    return NULL;
}

int wb_survey_start(struct wb_session *session)
{
    int r;

    if (!session->recording)
        return 0;
    if (wb_spans_was_lost(session->store))
        wb_log_msg("%s: the store's table of recorded times was missing or damaged; changes made past Wayback "
                   "before now cannot be distinguished from recorded ones",
                   session->source);
    r = pthread_create(&session->threads.survey, NULL, look_at_tree, session);
    session->threads.survey_runs = r == 0;
    return -r;
}

void wb_survey_stop(struct wb_session *session)
{
    if (session->threads.survey_runs)
        pthread_join(session->threads.survey, NULL);
    session->threads.survey_runs = false;
}
