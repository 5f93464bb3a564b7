/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What identifies things of the past to the kernel, to users and to the history; and who asks. */
#include "daemon/past/past_node.h"

#include "base/checksum.h"
#include "daemon/system/report.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A small file of /proc. Its length, 0 where it cannot be read. */
static size_t read_proc(int pid, const char *name, char *text, size_t size)
{
    char path[64];
    ssize_t n;
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    n = read(fd, text, size - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    return n > 0 ? (size_t)n : 0;
}

uint64_t wb_past_process(fuse_req_t req)
{
    char text[2048];
    unsigned long long begun;
    const char *at;
    int pid = fuse_req_ctx(req)->pid; /* the thread's number, in fact */
    uint64_t words[2];

    if (pid <= 0 || !read_proc(pid, "status", text, sizeof(text)))
        return 0;
    at = strstr(text, "\nTgid:");
    if (!at || sscanf(at + strlen("\nTgid:"), "%d", &pid) != 1 ||
        !read_proc(pid, "stat", text, sizeof(text)))
        return 0;
    /* The command may hold anything, a ')' too; the time of birth is the 20th field behind it. */
    at = strrchr(text, ')');
    if (!at || sscanf(at + 1, " %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s"
                              " %llu", &begun) != 1)
        return 0;
    words[0] = (uint64_t)pid;
    words[1] = begun;
    return wb_checksum(words, sizeof(words)) | 1;
}

struct place {
    struct wb_object object;
    char *name;
};

/* The chain from a directory up to the root, taken at once, because a rename may alter it. */
static int chain_of(struct wb_session *session, struct wb_live *live, GArray *chain)
{
    int r = 0;

    pthread_mutex_lock(&session->nodes.lock);
    for (; live != session->nodes.root; live = live->parent) {
        struct place place = {.object = live->node.object};

        if (!live->parent || !live->name) {
            r = -ESTALE;
            break;
        }
        place.name = g_strdup(live->name);
        g_array_append_val(chain, place);
    }
    pthread_mutex_unlock(&session->nodes.lock);
    return r;
}

int wb_past_spot_of(struct wb_session *session, struct wb_node *node, struct wb_spot **ret)
{
    struct wb_past_node *past = wb_past_of(node);
    struct wb_spot *spot = NULL;
    GArray *chain;
    int r;

    if (past) {
        *ret = wb_spot_ref(past->spot);
        return 0;
    }
    if (wb_snapdir_of(node))
        node = wb_snapdir_of(node)->parent;
    chain = g_array_new(FALSE, FALSE, sizeof(struct place));
    r = chain_of(session, wb_live_of(node), chain);
    if (r == 0)
        r = wb_spot_root(session->history, WB_WHEN_PRESENT, &spot);
    for (guint i = chain->len; i-- > 0;) {
        struct place *place = &g_array_index(chain, struct place, i);

        if (r == 0) {
            struct wb_spot *next = NULL;

            r = wb_spot_present(session->history, spot, place->name, place->object,
                                i == 0 ? node->type : S_IFDIR, &next);
            wb_spot_unref(spot);
            spot = next;
        }
        g_free(place->name);
    }
    g_array_free(chain, TRUE);
    if (r == 0)
        *ret = spot;
    return r;
}

/* ---- problems -------------------------------------------------------------------------------- */

int wb_past_result(struct wb_session *session, int r)
{
    struct wb_past *past = session->past;
    const char *problem = wb_history_problem();
    uint64_t check;
    bool known = false;

    if (r > 0)
        r = -EIO;
    if (r != -EIO)
        return r;
    if (!*problem)
        problem = "a state cannot be read (input/output error), and no reason is known; see the kernel's log, or run "
                  "vfsck";
    check = wb_checksum(problem, strlen(problem));
    pthread_mutex_lock(&past->lock);
    for (unsigned i = 0; i < G_N_ELEMENTS(past->told); i++)
        known = known || past->told[i] == check;
    if (!known)
        past->told[past->told_count++ % G_N_ELEMENTS(past->told)] = check;
    pthread_mutex_unlock(&past->lock);
    if (!known)
        wb_report("%s", problem);
    return r;
}

int wb_past_result_of_tool(struct wb_session *session, int r)
{
    if (*wb_history_problem())
        return wb_past_result(session, r);
    return r > 0 ? -EIO : r;
}
