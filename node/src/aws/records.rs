//! Route 53: a member sets its one record.

use slipway_driver::ports::PortResult;

use super::endpoints::Service;
use super::{Aws, Body, Call, encoded};

/// Who looks for a member that came back must not be told of its old address for long.
const TTL_S: u32 = 30;

impl Aws {
    /// Lets `name` be known as `address` in `zone`, whatever it was. `route53:ChangeResourceRecordSets`.
    ///
    /// # Errors
    /// If Route 53 refuses.
    pub async fn set_address(&self, zone: &str, name: &str, address: &str) -> PortResult<()> {
        let subject = format!("{name} in {zone}");
        let body = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\
             <ChangeResourceRecordSetsRequest xmlns=\"https://route53.amazonaws.com/doc/2013-04-01/\"><ChangeBatch>\
             <Comment>Slipway: an etcd member</Comment><Changes><Change><Action>UPSERT</Action><ResourceRecordSet>\
             <Name>{}</Name><Type>A</Type><TTL>{TTL_S}</TTL>\
             <ResourceRecords><ResourceRecord><Value>{}</Value></ResourceRecord></ResourceRecords>\
             </ResourceRecordSet></Change></Changes></ChangeBatch></ChangeResourceRecordSetsRequest>",
            escaped(name),
            escaped(address)
        );
        let zone = zone.rsplit('/').next().unwrap_or(zone);
        let url =
            format!("{}/2013-04-01/hostedzone/{}/rrset/", self.base(Service::Route53), encoded(zone, false));
        let call = Call {
            headers: vec![("content-type", "application/xml".to_owned())],
            body: Body::Bytes(body.as_bytes()),
            ..Call::new("route53:ChangeResourceRecordSets", &subject, Service::Route53, url)
        };
        self.send(&call).await.map(drop)
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
