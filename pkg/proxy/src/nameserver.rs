//! The cluster's name server: what the [`Zone`] knows from it, the rest from upstream, remembered.

use crate::upstream::Upstream;
use crate::zone::{Answer, Data, Record as ZoneRecord, TTL_SECONDS, Type, Zone};
use async_trait::async_trait;
use hickory_proto::op::{Edns, Metadata, OpCode, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, CNAME, PTR, SOA, SRV, TXT};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use hickory_proto::serialize::binary::BinEncodable;
use hickory_resolver::net::runtime::Time;
use hickory_resolver::net::xfer::Protocol;
use hickory_resolver::net::{DnsError, NetError};
use hickory_server::Server;
use hickory_server::server::{Request, RequestHandler, ResponseHandler, ResponseInfo};
use hickory_server::zone_handler::MessageResponseBuilder;
use parking_lot::RwLock;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, UdpSocket};
use tokio_util::sync::CancellationToken;

/// A connection that says nothing for so long is closed.
const IDLE: Duration = Duration::from_secs(10);
const RESPONSES: usize = 32;
/// The longest answer to a client that does not say how much it takes.
const SMALLEST_DATAGRAM: u16 = 512;
/// Room for the header, a question without its name, and EDNS.
const OUTSIDE_RECORDS: usize = 12 + 4 + 11;
/// The longest answer in one datagram, whatever the client takes: longer ones are cut to pieces on their way.
const LARGEST_DATAGRAM: u16 = 1232;

/// The names of the moment; swapped as a whole.
pub type SharedZone = Arc<RwLock<Arc<Zone>>>;

/// Serves names on these sockets until shutdown.
pub async fn serve(
    zone: SharedZone,
    upstream: Upstream,
    udp: Vec<UdpSocket>,
    tcp: Vec<TcpListener>,
    shutdown: CancellationToken,
) {
    let mut server = Server::new(Handler { zone, upstream, turn: AtomicUsize::new(0) });
    udp.into_iter().for_each(|socket| server.register_socket(socket));
    tcp.into_iter().for_each(|listener| server.register_listener(listener, IDLE, RESPONSES));
    shutdown.cancelled().await;
    if let Err(error) = server.shutdown_gracefully().await {
        tracing::warn!(%error, "the name server did not end well");
    }
}

/// Binds a name server's sockets.
pub async fn bind(address: SocketAddr) -> std::io::Result<(UdpSocket, TcpListener)> {
    let udp = UdpSocket::bind(address).await?;
    // The same port, also if any was asked for.
    let tcp = TcpListener::bind(udp.local_addr()?).await?;
    Ok((udp, tcp))
}

struct Handler {
    zone: SharedZone,
    upstream: Upstream,
    /// Whose turn it is to be the first of several addresses, which most clients take.
    turn: AtomicUsize,
}

/// What goes back.
#[derive(Default)]
struct Reply {
    code: Option<ResponseCode>,
    ours: bool,
    answers: Vec<Record>,
    besides: Vec<Record>,
    soa: Option<Record>,
}

impl Reply {
    /// Nothing but a code.
    fn of(code: ResponseCode) -> Reply {
        Reply { code: Some(code), ..Reply::default() }
    }

    /// Whoever asks for a name in capitals finds it so in the answer: some tell by that who answers them.
    fn spell(&mut self, name: &Name) {
        for record in self.answers.iter_mut().filter(|record| record.name == *name) {
            record.name = name.clone();
        }
    }

    /// Leaves out the records that do not fit, and says whether any of the answers is among them. What encodes messages
    /// would cut the last one in two.
    fn cut(&mut self, name: &Name, longest: usize) -> bool {
        let name_length = name.to_bytes().map_or(0, |bytes| bytes.len());
        // In the question, and in the first record.
        let mut room = longest.saturating_sub(OUTSIDE_RECORDS + 2 * name_length);
        let mut fits = |record: &Record| {
            let length = record.to_bytes().map_or(usize::MAX, |bytes| bytes.len());
            // A name that stands there already is two bytes.
            let length = if record.name == *name { length - name_length + 2 } else { length };
            let fits = length <= room;
            room = if fits { room - length } else { 0 };
            fits
        };
        let answers = self.answers.iter().take_while(|record| fits(record)).count();
        let is_cut = answers < self.answers.len();
        self.answers.truncate(answers);
        let besides = if is_cut { 0 } else { self.besides.iter().take_while(|record| fits(record)).count() };
        self.besides.truncate(besides);
        is_cut
    }
}

impl Handler {
    async fn reply(&self, name: &Name, kind: RecordType) -> Reply {
        let zone = self.zone.read().clone();
        match zone.answer(&name.to_ascii(), type_of(kind)) {
            Answer::Records(mut records, besides) => {
                if records.len() > 1 {
                    let turn = self.turn.fetch_add(1, Ordering::Relaxed) % records.len();
                    records.rotate_left(turn);
                }
                let soa = if records.is_empty() { authority(&zone) } else { None };
                let (answers, besides) = (encode(&records), encode(&besides));
                Reply { ours: true, answers, besides, soa, ..Reply::default() }
            }
            Answer::NoSuchName => Reply {
                code: Some(ResponseCode::NXDomain),
                ours: true,
                soa: authority(&zone),
                ..Reply::default()
            },
            Answer::NotYet => Reply::of(ResponseCode::ServFail),
            Answer::Alias(target) => self.alias(name, &target, kind).await,
            Answer::Elsewhere => self.upstream(name, kind).await,
        }
    }

    /// A name that stands for another: the other's records come along.
    async fn alias(&self, name: &Name, target: &str, kind: RecordType) -> Reply {
        let Ok(target) = Name::from_ascii(format!("{target}.")) else {
            return Reply::of(ResponseCode::ServFail);
        };
        let alias = Record::from_rdata(name.clone(), TTL_SECONDS, RData::CNAME(CNAME(target.clone())));
        let zone = self.zone.read().clone();
        let rest = match zone.answer(&target.to_ascii(), type_of(kind)) {
            Answer::Records(records, _) => encode(&records),
            Answer::Elsewhere => self.upstream(&target, kind).await.answers,
            // Aliases of aliases are the client's to follow.
            Answer::Alias(_) | Answer::NoSuchName | Answer::NotYet => Vec::new(),
        };
        Reply { ours: true, answers: std::iter::once(alias).chain(rest).collect(), ..Reply::default() }
    }

    async fn upstream(&self, name: &Name, kind: RecordType) -> Reply {
        let Some(resolver) = self.upstream.resolver() else {
            return Reply::of(ResponseCode::Refused);
        };
        match resolver.lookup(name.clone(), kind).await {
            Ok(found) => Reply { answers: found.answers().to_vec(), ..Reply::default() },
            Err(NetError::Dns(DnsError::NoRecordsFound(none))) => {
                let soa = none.soa.map(|soa| Record::from_rdata(soa.name, soa.ttl, RData::SOA(soa.data)));
                Reply { code: Some(none.response_code), soa, ..Reply::default() }
            }
            Err(error) => {
                tracing::debug!(%error, %name, "upstream does not answer");
                Reply::of(ResponseCode::ServFail)
            }
        }
    }
}

#[async_trait]
impl RequestHandler for Handler {
    async fn handle_request<R: ResponseHandler, T: Time>(
        &self,
        request: &Request,
        mut handle: R,
    ) -> ResponseInfo {
        let is_newer = request.edns.as_ref().is_some_and(|asked| asked.version() > 0);
        let offered = request.edns.as_ref().map(|asked| {
            let mut offered = Edns::new();
            offered.set_max_payload(asked.max_payload().min(LARGEST_DATAGRAM));
            offered.set_dnssec_ok(asked.flags().dnssec_ok);
            if is_newer {
                offered.set_rcode_high(ResponseCode::BADVERS.high());
            }
            offered
        });
        let mut builder = MessageResponseBuilder::from_message_request(request);
        if let Some(offered) = &offered {
            builder.edns(offered);
        }
        let (name, mut reply) = match request.request_info() {
            _ if request.metadata.op_code != OpCode::Query => (Name::root(), Reply::of(ResponseCode::NotImp)),
            _ if is_newer => (Name::root(), Reply::of(ResponseCode::BADVERS)),
            Ok(info) => {
                let name = info.query.original().name().clone();
                let mut reply = self.reply(&name, info.query.query_type()).await;
                reply.spell(&name);
                (name, reply)
            }
            Err(_) => (Name::root(), Reply::of(ResponseCode::FormErr)),
        };
        let mut metadata = Metadata::response_from_request(&request.metadata);
        metadata.authoritative = reply.ours;
        metadata.recursion_available = self.upstream.is_there();
        metadata.response_code = reply.code.unwrap_or(ResponseCode::NoError);
        if request.protocol() == Protocol::Udp {
            let longest = offered.as_ref().map_or(SMALLEST_DATAGRAM, Edns::max_payload);
            metadata.truncation = reply.cut(&name, longest.into());
        }
        let response = builder.build(metadata, &reply.answers, &[], &reply.soa, &reply.besides);
        match handle.send_response(response).await {
            Ok(info) => info,
            Err(error) => {
                tracing::debug!(%error, "an answer could not be sent");
                metadata.response_code = ResponseCode::ServFail;
                ResponseInfo::from(hickory_proto::op::Header { metadata, counts: Default::default() })
            }
        }
    }
}

fn type_of(kind: RecordType) -> Type {
    match kind {
        RecordType::A => Type::A,
        RecordType::AAAA => Type::Aaaa,
        RecordType::SRV => Type::Srv,
        RecordType::PTR => Type::Ptr,
        RecordType::TXT => Type::Txt,
        _ => Type::Other,
    }
}

fn encode(records: &[ZoneRecord]) -> Vec<Record> {
    let name = |text: &str| Name::from_ascii(format!("{text}.")).ok();
    let encoded = records.iter().filter_map(|record| {
        let data = match &record.data {
            Data::Address(IpAddr::V4(address)) => RData::A(A(*address)),
            Data::Address(IpAddr::V6(address)) => RData::AAAA(AAAA(*address)),
            Data::Cname(target) => RData::CNAME(CNAME(name(target)?)),
            Data::Srv(port, target) => RData::SRV(SRV::new(0, 100, *port, name(target)?)),
            Data::Ptr(target) => RData::PTR(PTR(name(target)?)),
            Data::Txt(text) => RData::TXT(TXT::new(vec![text.clone()])),
        };
        Some(Record::from_rdata(name(&record.name)?, TTL_SECONDS, data))
    });
    encoded.collect()
}

/// Says how long it is known that a name has nothing.
fn authority(zone: &Zone) -> Option<Record> {
    let domain = Name::from_ascii(format!("{}.", zone.domain())).ok()?;
    let server = Name::from_ascii(format!("ns.dns.{}.", zone.domain())).ok()?;
    let mailbox = Name::from_ascii(format!("hostmaster.{}.", zone.domain())).ok()?;
    let soa = SOA::new(server, mailbox, 1, 7200, 1800, 86400, 5);
    Some(Record::from_rdata(domain, 5, RData::SOA(soa)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::Reserved;
    use hickory_proto::op::{Message, Query};
    use hickory_resolver::TokioResolver;

    #[tokio::test]
    async fn what_is_odd_is_answered_as_others_do() {
        let here = ["192.0.2.7".parse().unwrap()];
        let zone = Zone::new(
            "cluster.local",
            vec![],
            vec![],
            ["shop.example".to_owned()].into_iter(),
            Reserved::default(),
            &here,
        );
        let (address, stop) = start(zone, Vec::new()).await;
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        socket.connect(address).await.unwrap();
        let ask = async |change: fn(&mut Message)| -> Message {
            let mut message = Message::query();
            message.add_query(Query::query(Name::from_ascii("sHoP.example.").unwrap(), RecordType::A));
            change(&mut message);
            socket.send(&message.to_vec().unwrap()).await.unwrap();
            let mut buffer = vec![0; 512];
            let length = testing::in_time("an answer", socket.recv(&mut buffer)).await.unwrap();
            Message::from_vec(&buffer[..length]).unwrap()
        };
        let plain = ask(|_| {}).await;
        assert_eq!(plain.answers[0].name.to_ascii(), "sHoP.example.", "as it was written");
        let status = ask(|message| message.metadata.op_code = OpCode::Status).await;
        assert_eq!(status.metadata.response_code, ResponseCode::NotImp);
        let newer = ask(|message| {
            let mut edns = Edns::new();
            edns.set_version(1);
            message.set_edns(edns);
        })
        .await;
        // It has the number of another, which is what it is read as.
        let code = u16::from(newer.metadata.response_code);
        assert_eq!((code, newer.answers.len()), (ResponseCode::BADVERS.into(), 0));
        stop.cancel();
    }

    /// A server on a free port, until the token is cancelled.
    async fn start(zone: Zone, upstream: Vec<SocketAddr>) -> (SocketAddr, CancellationToken) {
        // A port that is free for datagrams may be taken for connections.
        let (udp, tcp) = loop {
            match bind("127.0.0.1:0".parse().unwrap()).await {
                Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {}
                bound => break bound.unwrap(),
            }
        };
        let (address, stop) = (udp.local_addr().unwrap(), CancellationToken::new());
        let zone: SharedZone = Arc::new(RwLock::new(Arc::new(zone)));
        tokio::spawn(serve(zone, Upstream::fixed(upstream), vec![udp], vec![tcp], stop.clone()));
        (address, stop)
    }

    async fn ask(resolver: &TokioResolver, kind: RecordType, name: &str) -> Vec<String> {
        match resolver.lookup(Name::from_ascii(name).unwrap(), kind).await {
            Ok(found) => found.answers().iter().map(|record| record.data.to_string()).collect(),
            Err(NetError::Dns(DnsError::NoRecordsFound(none))) => vec![none.response_code.to_string()],
            Err(error) => vec![error.to_string()],
        }
    }

    #[tokio::test]
    async fn names_are_answered_over_the_wire_and_others_remembered() {
        let service = |value| Arc::new(serde_json::from_value(value).unwrap());
        let services: Vec<Arc<crate::record::Service>> = vec![
            service(serde_json::json!({"metadata": {"namespace": "default", "name": "far"}, "spec": {
                "type": "ExternalName", "externalName": "outside.example"}})),
            service(serde_json::json!({"metadata": {"namespace": "default", "name": "web"}, "spec": {
                "clusterIP": "10.96.0.5", "clusterIPs": ["10.96.0.5", "fd00:96::5"],
                "ports": [{"name": "http", "port": 80}]}})),
        ];
        let elsewhere = ["outside.example".to_owned()];
        let there = ["192.0.2.7".parse().unwrap()];
        let outside =
            Zone::new("example.net", vec![], vec![], elsewhere.into_iter(), Reserved::default(), &there);
        let (outside, outside_stop) = start(outside, Vec::new()).await;
        let zone = Zone::new("cluster.local", services, vec![], std::iter::empty(), Reserved::default(), &[]);
        let (address, stop) = start(zone, vec![outside]).await;
        let client = Upstream::fixed(vec![address]).resolver().unwrap();
        let web = "web.default.svc.cluster.local.";
        assert_eq!(ask(&client, RecordType::A, web).await, ["10.96.0.5"]);
        assert_eq!(ask(&client, RecordType::AAAA, web).await, ["fd00:96::5"]);
        assert_eq!(
            ask(&client, RecordType::SRV, &format!("_http._tcp.{web}")).await,
            [format!("0 100 80 {web}")]
        );
        assert_eq!(ask(&client, RecordType::PTR, "5.0.96.10.in-addr.arpa.").await, [web]);
        assert_eq!(
            ask(&client, RecordType::A, "nosuch.default.svc.cluster.local.").await,
            ["Non-Existent Domain"]
        );
        let far = ask(&client, RecordType::A, "far.default.svc.cluster.local.").await;
        assert_eq!(far, ["outside.example.", "192.0.2.7"]);
        // The other server goes away: its answer is remembered, by ours, since the client is another one.
        outside_stop.cancel();
        let client = Upstream::fixed(vec![address]).resolver().unwrap();
        assert_eq!(ask(&client, RecordType::A, "outside.example.").await, ["192.0.2.7"]);
        stop.cancel();
    }

    #[tokio::test]
    async fn long_answers_fit_or_say_that_they_do_not() {
        let service = serde_json::json!({"metadata": {"namespace": "default", "name": "db"}, "spec": {"clusterIP": "None"}});
        let endpoints: Vec<_> =
            (1..=60).map(|n| serde_json::json!({"addresses": [format!("10.244.1.{n}")]})).collect();
        let slice = serde_json::json!({"metadata": {"namespace": "default", "labels": {"kubernetes.io/service-name": "db"}},
            "addressType": "IPv4", "endpoints": endpoints, "ports": []});
        let services = vec![Arc::new(serde_json::from_value(service).unwrap())];
        let slices = [Arc::new(serde_json::from_value(slice).unwrap())];
        let zone = Zone::new("cluster.local", services, slices, std::iter::empty(), Reserved::default(), &[]);
        let (address, stop) = start(zone, Vec::new()).await;
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        socket.connect(address).await.unwrap();
        let ask = async |payload: Option<u16>| -> Message {
            let mut message = Message::query();
            let name = Name::from_ascii("db.default.svc.cluster.local.").unwrap();
            message.add_query(Query::query(name, RecordType::A));
            if let Some(payload) = payload {
                let mut edns = Edns::new();
                edns.set_max_payload(payload);
                message.set_edns(edns);
            }
            socket.send(&message.to_vec().unwrap()).await.unwrap();
            let mut buffer = vec![0; 65535];
            let length = testing::in_time("an answer", socket.recv(&mut buffer)).await.unwrap();
            let answer = Message::from_vec(&buffer[..length]).unwrap();
            // Encoded again, the first record's name is two bytes instead of its length and two.
            let again = answer.to_vec().unwrap().len() + "db.default.svc.cluster.local".len();
            assert_eq!(again, length, "nothing is cut in two");
            answer
        };
        let plain = ask(None).await;
        assert_eq!((plain.metadata.truncation, plain.answers.len()), (true, 26));
        assert!(plain.edns.is_none());
        let first = ask(Some(4096)).await;
        assert_eq!((first.metadata.truncation, first.answers.len()), (false, 60));
        assert_eq!(first.max_payload(), LARGEST_DATAGRAM);
        let second = ask(Some(4096)).await;
        assert_ne!(first.answers[0], second.answers[0], "each has its turn");
        stop.cancel();
    }
}
