//! AWS' own list of prices, by the Price List Query API.
//!
//! "Using the AWS Price List Query API" (AWS Billing user guide) and the example of `GetProducts` in its API reference have the form of the
//! answers: each product is JSON in a string, with its attributes, and with the rates of its terms. Only on-demand rates are read.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use slipway_ports::{ErrorKind, PortError, PortResult};

use crate::Aws;
use crate::raw::{Service, unreadable};

/// A product of AWS' price list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Product {
    /// Its attributes, such as `usagetype`.
    pub attributes: BTreeMap<String, String>,
    /// What it costs on demand, one for each range of use.
    pub rates: Vec<Rate>,
}

/// The price of a unit, from one amount of use on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rate {
    /// What is counted: `Hrs`, `GB-Mo` and so on.
    pub unit: String,
    /// From which amount of use on it is charged, as AWS writes it.
    pub from: String,
    /// `USD`, or `CNY` in China.
    pub currency: String,
    /// As AWS writes it: `0.0960000000`.
    pub price: String,
}

/// More pages than this are not read.
const MOST_PAGES: usize = 20;

impl Aws {
    /// The products of `service` whose attributes are `filters`. `pricing:GetProducts`.
    ///
    /// # Errors
    /// If the Price List refuses, cannot be reached, or answers in a form that it does not document.
    pub async fn products(&self, service: &str, filters: &BTreeMap<&str, &str>) -> PortResult<Vec<Product>> {
        const OPERATION: &str = "pricing:GetProducts";
        // botocore's `endpoints.json` has none in its partition, and credentials of GovCloud are valid in no other.
        if self.region().starts_with("us-gov-") {
            return Err(PortError {
                kind: ErrorKind::Invalid,
                operation: OPERATION,
                subject: service.to_owned(),
                message: "NoEndpoint: GovCloud has no price list; run this with credentials of a commercial account and the region us-east-1, \
                          whose prices are others"
                    .to_owned(),
            });
        }
        let filters: Vec<Value> = filters
            .iter()
            .map(|(field, value)| json!({ "Type": "TERM_MATCH", "Field": field, "Value": value }))
            .collect();
        let mut body = json!({ "ServiceCode": service, "Filters": filters, "FormatVersion": "aws_v1", "MaxResults": 100 });
        let mut products = Vec::new();
        for _ in 0..MOST_PAGES {
            let answer =
                self.json(Service::Pricing, "AWSPriceListService", OPERATION, service, &body).await?;
            let list = answer["PriceList"].as_array().ok_or_else(|| unreadable(OPERATION, service))?;
            for item in list {
                products.push(product(item).ok_or_else(|| unreadable(OPERATION, service))?);
            }
            match answer["NextToken"].as_str().filter(|token| !token.is_empty()) {
                Some(token) => body["NextToken"] = json!(token),
                None => return Ok(products),
            }
        }
        Ok(products)
    }
}

fn product(item: &Value) -> Option<Product> {
    let read: Value = serde_json::from_str(item.as_str()?).ok()?;
    let attributes = read["product"]["attributes"].as_object()?.iter();
    let attributes = attributes.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
    // A product that can only be reserved has no such term.
    let terms = read["terms"]["OnDemand"].as_object().into_iter().flat_map(|terms| terms.values());
    let dimensions = terms.filter_map(|term| term["priceDimensions"].as_object());
    let rates = dimensions.flat_map(|dimensions| dimensions.values()).filter_map(rate).collect();
    Some(Product { attributes: attributes.collect(), rates })
}

fn rate(dimension: &Value) -> Option<Rate> {
    let (currency, price) = dimension["pricePerUnit"].as_object()?.iter().next()?;
    let text = |name: &str| dimension[name].as_str().map(str::to_owned);
    Some(Rate {
        unit: text("unit")?,
        from: text("beginRange")?,
        currency: currency.clone(),
        price: price.as_str()?.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::testing::Server;

    /// The example of `GetProducts` in AWS' API reference, as botocore has it (`pricing/2017-10-15/examples-1.json`), without its token.
    const EXAMPLE: &str = r#"{"FormatVersion": "aws_v1", "PriceList": ["{\"product\":{\"productFamily\":\"Storage\",\"attributes\":{\"storageMedia\":\"SSD-backed\",\"maxThroughputvolume\":\"320 MB/sec\",\"volumeType\":\"Provisioned IOPS\",\"maxIopsvolume\":\"20000\",\"servicecode\":\"AmazonEC2\",\"usagetype\":\"CAN1-EBS:VolumeUsage.piops\",\"locationType\":\"AWS Region\",\"location\":\"Canada (Central)\",\"servicename\":\"Amazon Elastic Compute Cloud\",\"maxVolumeSize\":\"16 TiB\",\"operation\":\"\"},\"sku\":\"WQGC34PB2AWS8R4U\"},\"serviceCode\":\"AmazonEC2\",\"terms\":{\"OnDemand\":{\"WQGC34PB2AWS8R4U.JRTCKXETXF\":{\"priceDimensions\":{\"WQGC34PB2AWS8R4U.JRTCKXETXF.6YS6EN2CT7\":{\"unit\":\"GB-Mo\",\"endRange\":\"Inf\",\"description\":\"$0.138 per GB-month of Provisioned IOPS SSD (io1)  provisioned storage - Canada (Central)\",\"appliesTo\":[],\"rateCode\":\"WQGC34PB2AWS8R4U.JRTCKXETXF.6YS6EN2CT7\",\"beginRange\":\"0\",\"pricePerUnit\":{\"USD\":\"0.1380000000\"}}},\"sku\":\"WQGC34PB2AWS8R4U\",\"effectiveDate\":\"2017-08-01T00:00:00Z\",\"offerTermCode\":\"JRTCKXETXF\",\"termAttributes\":{}}}},\"version\":\"20170901182201\",\"publicationDate\":\"2017-09-01T18:22:01Z\"}"]}"#;

    #[tokio::test]
    async fn the_example_of_the_api_reference_is_read_on_each_page() {
        let first = r#"{"FormatVersion": "aws_v1", "NextToken": "more", "PriceList": []}"#;
        let server = Server::new(&[(200, first), (200, EXAMPLE)]);
        let filters = BTreeMap::from([("volumeType", "Provisioned IOPS"), ("regionCode", "ca-central-1")]);
        let products = server.aws().products("AmazonEC2", &filters).await.unwrap();
        let [product] = products.as_slice() else { panic!("{products:?}") };
        assert_eq!(product.attributes["usagetype"], "CAN1-EBS:VolumeUsage.piops");
        let [unit, from, currency, price] = ["GB-Mo", "0", "USD", "0.1380000000"].map(str::to_owned);
        assert_eq!(product.rates, [Rate { unit, from, currency, price }]);

        let requests = server.requests();
        assert!(requests[0].headers.contains(&"x-amz-target: AWSPriceListService.GetProducts".to_owned()));
        let asked: Value = serde_json::from_str(&requests[1].body).unwrap();
        let expected = json!({ "ServiceCode": "AmazonEC2", "FormatVersion": "aws_v1", "MaxResults": 100, "NextToken": "more", "Filters": [
            { "Type": "TERM_MATCH", "Field": "regionCode", "Value": "ca-central-1" },
            { "Type": "TERM_MATCH", "Field": "volumeType", "Value": "Provisioned IOPS" },
        ] });
        assert_eq!(asked, expected);
        let signature = requests[0].headers.iter().find(|header| header.starts_with("authorization: "));
        assert!(signature.unwrap().contains("/eu-central-1/pricing/aws4_request"), "{signature:?}");
    }

    #[tokio::test]
    async fn an_answer_in_another_form_is_no_empty_list() {
        let refused = r#"{"__type": "AccessDeniedException", "Message": "no"}"#;
        let server = Server::new(&[(200, "{}"), (200, r#"{"PriceList": ["x"]}"#), (400, refused)]);
        let aws = server.aws();
        for expected in [ErrorKind::Transient, ErrorKind::Transient, ErrorKind::Denied] {
            let error = aws.products("AmazonEC2", &BTreeMap::new()).await.unwrap_err();
            assert_eq!((error.kind, error.operation), (expected, "pricing:GetProducts"));
        }
    }

    #[tokio::test]
    async fn in_govcloud_it_says_that_there_is_no_price_list() {
        let server = Server::new(&[]);
        let aws = server.aws_in("us-gov-west-1");
        let error = aws.products("AmazonEC2", &BTreeMap::new()).await.unwrap_err();
        assert!(
            error.kind == ErrorKind::Invalid && error.message.contains("GovCloud has no price list"),
            "{error:?}"
        );
        assert!(server.requests().is_empty());
    }
}
