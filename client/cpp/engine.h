// What runs a Session: one lock around its Step, effects carried out in order by whichever thread
// finds nobody else doing so, callbacks of the channel, a thread for time, and what applies
// targets.
#pragma once

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/cpp/broker_client.h"
#include "client/cpp/notices.h"
#include "client/cpp/session.h"
#include "vrambroker/v1/broker.grpc.pb.h"

namespace vrambroker::client {

class Engine {
 public:
  // Requires checked options, and what MakeCredentials makes of them.
  Engine(ClientOptions options, const std::shared_ptr<grpc::ChannelCredentials>& credentials);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Thread-safe. Returns once the session has taken the event; its effects may be carried out by
  // another thread.
  void Deliver(const Event& event);

  // What became of a use that was asked for.
  struct UseOutcome {
    bool granted = false;
    bool refused = false;
    bool closed = false;
    int resident_layers = 0;
    int64_t activation_bytes = 0;
    uint64_t use_id = 0;
    bool brokered = true;
    v1::Reason reason = v1::REASON_UNSPECIFIED;
    absl::Status status;
    int keep = 0;
  };
  Ticket NewTicket(const v1::BeginUseRequest& request);
  // Waits until the use is granted or refused, `closed` until it is closed; or the deadline.
  // Returns what is known then.
  UseOutcome WaitForUse(Ticket ticket, bool closed, absl::Time deadline);
  void Forget(Ticket ticket);

  ManagedComponent* Find(const std::string& component) const;
  std::optional<int64_t> PoolBytes() const;
  // Tells the session what a component holds now, between uses.
  void TellHeld(const std::string& component, int held, bool copying);
  // Gives the pool back and tells the session. Safe from any thread.
  void TrimNow();
  // Has targets applied: by the thread, or by the program's next Poll().
  void SignalWork();
  // A full reset of every component, each under its lock; what cannot be released is an error, and
  // the rest goes on. Waits until it is reported.
  absl::Status ReleaseAllComponents();
  // One pass over all components; returns whether anything was done.
  bool ApplyOnce();
  int poll_descriptor() const { return poll_fd_; }

  absl::Status WaitReady(absl::Time deadline);
  // Waits until all that is held has been reported and answered, or there is no session.
  bool WaitReported(absl::Time deadline);
  std::string WaitingFor() const;
  std::string WhyPageable(const std::string& component) const;
  bool attached() const;
  SessionInfo session() const;
  // Until when a driver's call that begins now is tried.
  absl::Time DriverGivesUpAt() const;
  // The open session, waiting for one until the deadline; id 0: none came.
  SessionInfo WaitSession(absl::Time deadline);
  std::string NewRequestId();
  // Unary calls of drivers, answered within a few seconds. The session may be gone by then.
  template <typename Request, typename Response>
  absl::Status Call(grpc::Status (v1::VramBroker::Stub::*method)(grpc::ClientContext*,
                                                                 const Request&, Response*),
                    const Request& request, Response* response) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(5)));
    return FromGrpc((stub_.get()->*method)(&context, request, response));
  }

 private:
  class Stream;
  template <typename Request, typename Response, typename Answered>
  friend struct UnaryCall;

  static absl::Status FromGrpc(const grpc::Status& status);
  void CarryOut(const Effect& effect);
  void Do(const OpenStream& e);
  void Do(const SendBegin& e);
  void Do(const SendEnd& e);
  void Do(const SendReport& e);
  void Do(const SendUpdate& e);
  void Do(const CancelBegin& e);
  void Do(const UseGranted& e);
  void Do(const UseRefused& e);
  void Do(const UseClosed& e);
  void Do(const WorkChanged& e);
  void Do(const PlaceFixed& e);
  void Do(const TrimPool& e);
  void Do(const PinsChanged& e);
  void Do(const SessionChanged& e);
  void Do(const ConnectAt& e);
  void Do(const WakeAt& e);
  bool ApplyTo(ManagedComponent* component, const std::string& name);
  bool Place(ManagedComponent* component, const std::string& name);
  bool Pin(ManagedComponent* component, const std::string& name);
  void RunTimer();
  void RunApplier();
  void CallStarted();
  void CallEnded();
  void CancelCalls();
  void LookForBroker();
  // Requires the lock.
  Notices::Components NoticedComponents() const;
  // Requires the lock; the words of all refusals in one.
  std::string Refusals() const;
  // Passes lines on. Without the lock.
  void Say(const Notices::Lines& lines);

  const ClientOptions options_;
  std::map<std::string, ManagedComponent*> components_;
  std::unique_ptr<v1::VramBroker::Stub> stub_;
  int poll_fd_ = -1;
  const absl::Time created_ = absl::Now();
  std::mutex notice_mutex_;  // one line at a time

  mutable std::mutex mutex_;  // guards all below
  Notices notices_;
  std::condition_variable changed_;
  Session session_;
  std::deque<Effect> effects_;
  bool carrying_out_ = false;
  std::map<Ticket, UseOutcome> uses_;
  Ticket last_ticket_ = 0;
  uint64_t last_request_ = 0;
  std::map<std::string, grpc::ClientContext*> begins_;  // by request id
  Stream* stream_ = nullptr;
  int calls_ = 0;  // under way, the stream included
  std::set<std::string> to_place_;
  std::map<std::string, absl::Status> place_errors_;
  std::set<std::string> failed_loads_;  // until their target changes
  bool to_trim_ = false;
  bool work_ = false;
  bool no_broker_ = false;
  // Whether a session is or was open, and when the last one was lost.
  bool had_session_ = false;
  absl::Time lost_at_ = absl::InfinitePast();
  absl::Status last_refusal_;
  bool refused_for_good_ = false;
  absl::Time connect_at_ = absl::InfiniteFuture();
  absl::Time wake_at_ = absl::InfiniteFuture();
  bool stopping_ = false;
  std::thread timer_;
  std::thread applier_;
};

}  // namespace vrambroker::client
