/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the threads and requests of a session ask of it, beside its nodes. */
#include "daemon/core/session.h"

#include "wayback/when.h"
#include <fcntl.h>
#include <glib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>

/* File systems that count subdirectories in st_nlink count ours as well. */
void wb_session_count_hidden(struct wb_session *session)
{
    static const char *const names[] = {WB_STORE_NAME, WB_STAGING_NAME};
    unsigned count = 0;
    struct stat st;

    for (unsigned i = 0; i < G_N_ELEMENTS(names); i++) {
        g_autofree char *other = g_ascii_strup(names[i], -1);

        if (fstatat(session->src_fd, names[i], &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode))
            continue;
        count++;
        session->hidden_ino[i] = st.st_ino;
        session->folds = session->folds || (fstatat(session->src_fd, other, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
                                            st.st_ino == session->hidden_ino[i]);
    }
    session->hidden = count;
}

/* Where nothing is free at all, that cannot be seen, and may be so. */
static bool may_have_reserve(int fd)
{
    struct statvfs device;

    return fstatvfs(fd, &device) < 0 || device.f_bfree == 0 || device.f_bfree > device.f_bavail;
}

void wb_session_note_reserve(struct wb_session *session)
{
    session->has_reserve = session->is_root &&
                           (may_have_reserve(session->src_fd) ||
                            (session->store && may_have_reserve(session->store->dir_fd)));
}

void wb_session_note_place(struct wb_session *session)
{
    struct stat inside, store;

    wb_session_count_hidden(session);
    wb_session_note_reserve(session);
    session->store_apart = fstatat(session->src_fd, WB_STORE_NAME, &inside, AT_SYMLINK_NOFOLLOW) < 0 ||
                           fstat(session->store->dir_fd, &store) < 0 || inside.st_dev != store.st_dev ||
                           inside.st_ino != store.st_ino;
}

void wb_session_wait(struct wb_session_threads *threads, int64_t ns)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    ns += until.tv_nsec;
    until.tv_sec += ns / WB_WHEN_SECOND;
    until.tv_nsec = ns % WB_WHEN_SECOND;
    pthread_cond_timedwait(&threads->wake, &threads->lock, &until);
}

bool wb_compact_in_use(void *data, struct wb_object object)
{
    struct wb_session *session = data;
    struct wb_inode *inode = wb_inode_find(session, object);

    if (!inode)
        return false;
    wb_inode_unref(session, inode);
    return true;
}
