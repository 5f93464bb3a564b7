/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/compact.h"

#include "daemon/node.h"
#include "keep/compact.h"
#include "wayback/when.h"
#include <glib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Of linux/ioprio.h: this process, and only when nobody else wants the disk. */
#define IOPRIO_SELF 1
#define IOPRIO_IDLE (3 << 13)

struct packer {
    struct wb_session *session;
    unsigned folder;
    /* Logs last written in (considered, now - rest] have their turn: each once after it came to rest, so what does not
     * get smaller is not tried again and again. All of them after the mount: nothing is known of them then. */
    int64_t considered[WB_COMPACT_FOLDERS];
};

void wb_compact_set(struct wb_session *session, const struct wb_compaction *compaction)
{
    atomic_store(&session->compact_rest, compaction->method == WB_COMPACTION_ZSTD ? compaction->rest : 0);
}

bool wb_compact_in_use(void *data, struct wb_object object)
{
    struct wb_session *session = data;
    struct wb_live *live = wb_live_find(session, object);

    if (!live)
        return false;
    wb_live_unref(session, live);
    return true;
}

static bool is_over(void *data)
{
    struct wb_session *session = data;

    /* Somebody may have said that nothing is to be packed any more. */
    return atomic_load(&session->compact_ends) || atomic_load(&session->compact_rest) == 0;
}

static void pack_folder(struct packer *packer, unsigned rest)
{
    struct wb_compact compact = {
        .flags = WB_COMPACT_IDLE, .before = WB_WHEN_PRESENT, .stop = is_over, .stop_data = packer->session};
    int64_t *considered = &packer->considered[packer->folder];
    int64_t until = wb_when_now() - (int64_t)rest * WB_WHEN_SECOND;
    int r;

    r = wb_compact_folder(packer->session->store, &compact, packer->folder, *considered, until);
    /* What had no turn, or no room, has its turn the next time round. */
    if (r != -ECANCELED && r != -ENOSPC && r != -EDQUOT && until > *considered)
        *considered = until;
    packer->folder = (packer->folder + 1) % WB_COMPACT_FOLDERS;
}

/* All folders in about four times as long as a log has to rest, but none more often than necessary. */
static int64_t pause_of(unsigned rest)
{
    int64_t pause = rest * WB_WHEN_SECOND / 64;

    return CLAMP(pause, WB_WHEN_SECOND / 50, 10 * WB_WHEN_SECOND);
}

static void *pack_what_rests(void *data)
{
    struct wb_session *session = data;
    struct wb_session_threads *threads = &session->threads;
    struct packer packer = {.session = session};

    setpriority(PRIO_PROCESS, (id_t)gettid(), 19);
    syscall(SYS_ioprio_set, IOPRIO_SELF, 0, IOPRIO_IDLE);
    pthread_mutex_lock(&threads->lock);
    while (!threads->stop) {
        unsigned rest = atomic_load(&session->compact_rest);

        wb_session_wait(threads, rest ? pause_of(rest) : WB_WHEN_SECOND);
        if (threads->stop || rest == 0)
            continue;
        pthread_mutex_unlock(&threads->lock);
        pack_folder(&packer, rest);
        pthread_mutex_lock(&threads->lock);
    }
    pthread_mutex_unlock(&threads->lock);
    return NULL;
}

int wb_compact_start(struct wb_session *session)
{
    int r;

    if (!session->recording)
        return 0;
    r = pthread_create(&session->threads.compact, NULL, pack_what_rests, session);
    if (r != 0)
        return -r;
    session->threads.compact_runs = true;
    return 0;
}

void wb_compact_stop(struct wb_session *session)
{
    if (!session->threads.compact_runs)
        return;
    atomic_store(&session->compact_ends, true);
    pthread_mutex_lock(&session->threads.lock);
    session->threads.stop = true;
    pthread_cond_broadcast(&session->threads.wake);
    pthread_mutex_unlock(&session->threads.lock);
    pthread_join(session->threads.compact, NULL);
    session->threads.compact_runs = false;
}
